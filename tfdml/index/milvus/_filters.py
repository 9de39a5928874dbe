r"""Translate filters into the expression language of Milvus.

Attributes are keys of one JSON field. Milvus takes such a key apart at brackets and
quotes, so a name that is not a plain word is spelled in hexadecimal digits: `key_of`.

Strings are in double quotes with five escapes: \\ \" \n \r \t. All else represents
itself, in the grammar of the server (`Plan.g4`, whose strings Go's `strconv.Unquote`
reads) as in that of milvus-lite. So a string can neither end early nor change.

A comparison with a key that is missing is unknown, or true of `!=`, as the version has
it. So `Not` always asks for the missing key first: true or unknown is true.
"""

import math
import re
import sys
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from tfdml.index._filters import Not, Range, Where, check_where
from tfdml.index.rows import TYPES
from tfdml.messages import shown

ID = "id"
ATTRIBUTES = "attributes"

SMALLEST = -(2**63)
"""Milvus reads a minus and then the number, and this one's does not fit int64."""

_LARGEST = 2**63 - 1
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPELLED = "hex__"
_ESCAPES = str.maketrans(
    {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
)


def key_of(name: str) -> str:
    """Return the key of an attribute: the name itself where that is a plain word."""
    if _PLAIN.fullmatch(name) and not name.startswith(_SPELLED):
        return name
    return _SPELLED + name.encode().hex()


def name_of(key: str) -> str:
    """Return the name of the attribute with a key."""
    if not key.startswith(_SPELLED):
        return key
    try:
        return bytes.fromhex(key.removeprefix(_SPELLED)).decode()
    except ValueError:  # of some other program
        return key


def ids_expression(ids: Sequence[str] | Sequence[int]) -> str:
    """Return the expression that holds of the items with some ids, at least one."""
    return f"{ID} in [{', '.join(map(_literal, ids))}]"


def ids_after(last: str | int) -> str:
    """Return the expression that holds of the items whose ids come after one."""
    return f"{ID} > {_literal(last)}"


def without_ids(expression: str | bool, ids: Sequence[Any]) -> str | bool:
    """Return an expression that does not hold of the items with some ids."""
    texts = [_literal(value) for value in ids if value != SMALLEST]
    if expression is False or not texts:
        return expression
    others = f"{ID} not in [{', '.join(texts)}]"
    return others if expression is True else f"({expression}) and ({others})"


def expression_of(where: Where, kinds: dict[str, str]) -> str | bool:
    """Return a filter as an expression.

    Args:
        where: The filter.
        kinds: The kind of each attribute of the index.

    Returns:
        The expression; True where it holds of every item, False where of none.

    Raises:
        ValueError: As `check_where`, or a string is not valid Unicode.
    """
    check_where(where, kinds)
    parts = [
        _condition(condition, f'{ATTRIBUTES}["{key_of(name)}"]', kinds[name])
        for name, condition in where.items()
    ]
    if not all(parts):
        return False
    texts = [f"({part})" for part in parts if part is not True]
    return " and ".join(texts) if texts else True


def _condition(condition: Any, field: str, kind: str) -> str | bool:
    negated = isinstance(condition, Not)
    if isinstance(condition, Not):
        condition = condition.condition
    if isinstance(condition, Range):
        return _in_range(condition, field, kind, negated)
    values = [value for value in _values(condition) if _can_equal(value, kind)]
    if not values:
        return negated
    # milvus-lite has no `in` for keys of JSON.
    texts = [_literal(TYPES[kind](value)) for value in values]
    if negated:
        others = " and ".join(f"{field} != {text}" for text in texts)
        return f"not (exists {field}) or ({others})"
    return " or ".join(f"{field} == {text}" for text in texts)


def _values(condition: Any) -> list[Any]:
    if isinstance(condition, np.ndarray):
        condition = condition.tolist()
    is_one = isinstance(condition, str | bytes)
    if is_one or not isinstance(condition, Sequence | Set):
        condition = [condition]
    return [_plain(value) for value in condition]


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy as Python's: those compare exactly."""
    return value.item() if isinstance(value, np.generic) else value


def _can_equal(value: Any, kind: str) -> bool:
    """Return whether an attribute of a kind can have a value at all."""
    if kind == "integer":
        return bool(SMALLEST < value <= _LARGEST and value == int(value))
    if kind == "number":
        return bool(abs(value) <= sys.float_info.max and value == float(value))
    return True


def _in_range(limits: Range, field: str, kind: str, negated: bool) -> str | bool:
    within, outside = [], [f"not (exists {field})"]
    for limit, side in ((limits.least, 1), (limits.most, -1)):
        limit = _limit(limit, side, kind)
        if limit is False:
            return negated
        if limit is not None:
            text = _literal(limit)
            within.append(f"{field} {'>=' if side > 0 else '<='} {text}")
            outside.append(f"{field} {'<' if side > 0 else '>'} {text}")
    if negated:
        return " or ".join(outside)
    return " and ".join(within or [f"exists {field}"])


def _limit(limit: Any, side: int, kind: str) -> Any:
    """Return a limit as Milvus can read it: None for any, False for one out of reach.

    Args:
        limit: What `Range` was given.
        side: 1 for the least, -1 for the most.
        kind: The kind of the attribute.
    """
    limit = _plain(limit)
    if limit is None or kind == "string":
        return limit
    smallest, largest = (
        (SMALLEST + 1, _LARGEST)
        if kind == "integer"
        else (-sys.float_info.max, sys.float_info.max)
    )
    if limit < smallest:
        return None if side > 0 else False
    if limit > largest:
        return False if side > 0 else None
    if kind == "number":
        converted = float(limit)
        is_beyond = converted < limit if side > 0 else converted > limit
        return math.nextafter(converted, side * math.inf) if is_beyond else converted
    return math.ceil(limit) if side > 0 else math.floor(limit)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    try:
        value.encode()
    except UnicodeEncodeError:  # in a filter: ids have been checked
        raise ValueError(
            "`where` must hold valid Unicode, as Milvus requires. Received: "
            f"{shown(value)}."
        ) from None
    return f'"{value.translate(_ESCAPES)}"'
