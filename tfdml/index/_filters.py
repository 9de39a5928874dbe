"""Filter items by their attributes: equality, lists, ranges and their opposites.

A filter is a dictionary with a condition for each attribute; all must hold:

    {"class": "shoe"}                            equal
    {"class": ["shoe", "boot"]}                  one of
    {"price": Range(10, 50)}                     from 10 to 50, both included
    {"class": Not("shoe")}                       anything else; no value at all too

An item without the attribute fulfils no condition but `Not`. In JSON, `Range` is
{"least": 10, "most": 50} and `Not` is {"not": "shoe"}; see `where_from_json`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows import ColumnView, Scalar
from tfdml.messages import shown


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and not isinstance(value, bool)


@dataclass(frozen=True)
class Range:
    """Numbers, or strings in the order of their characters, between two limits.

    Args:
        least: The smallest that is allowed; None for any.
        most: The largest that is allowed; None for any.

    Raises:
        ValueError: Neither is given, or `least` is above `most`.
    """

    least: int | float | str | None = None
    most: int | float | str | None = None

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.least is None and self.most is None:
            raise ValueError("`Range` must have `least`, `most` or both.")
        for name, limit in (("least", self.least), ("most", self.most)):
            if limit is not None and not (
                isinstance(limit, str) or (_is_number(limit) and limit == limit)
            ):
                raise ValueError(
                    f"`{name}` must be a number or a string. Received: {shown(limit)}."
                )
        if self.least is None or self.most is None:
            return
        if isinstance(self.least, str) != isinstance(self.most, str):
            raise ValueError(
                "`least` and `most` must be of one kind. "
                f"Received: {shown(self.least)} and {shown(self.most)}."
            )
        if self.least > self.most:  # type: ignore[operator]
            raise ValueError(
                "`least` must be at most `most`. "
                f"Received: least={shown(self.least)}, most={shown(self.most)}."
            )


@dataclass(frozen=True)
class Not:
    """Whatever does not fulfill a condition.

    Args:
        condition: A value, a sequence of values, or a `Range`; not another `Not`.
    """

    condition: "Scalar | Sequence[Scalar] | Range"


Where = Mapping[str, Scalar | Sequence[Scalar] | Range | Not]
"""A filter: for each attribute a value, a list of values, a `Range` or a `Not`."""


def where_from_json(values: Any) -> Where:
    """Read a filter from JSON types.

    Args:
        values: A dictionary of conditions: a value, a list of values,
            `{"least": number, "most": number}` with one of them or both, or
            `{"not": condition}`, with one of the others in it.

    Raises:
        ValueError: It is not such a dictionary.
    """
    if not isinstance(values, dict):
        raise ValueError(
            f"`where` must be an object of conditions. Received: {shown(values)}."
        )
    return {name: _condition_from_json(name, value) for name, value in values.items()}


def _condition_from_json(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"not"}:
            inner = value["not"]
            if not (isinstance(inner, dict) and "not" in inner):
                return Not(_condition_from_json(name, inner))
        elif value and value.keys() <= {"least", "most"}:
            return Range(**value)
    items = value if isinstance(value, list) else [value]
    if all(isinstance(item, str | int | float | bool) for item in items):
        return value
    raise ValueError(
        f"`where[{shown(name)}]` must be a value, a list of values, an object with "
        f"`least` or `most`, or an object with `not`. Received: {shown(value)}."
    )


def check_where(where: Where, kinds: Mapping[str, str]) -> None:
    """Check that a filter names known attributes and compares values of their kinds.

    Args:
        where: The filter.
        kinds: The kind of each attribute: string, integer, number or boolean.

    Raises:
        ValueError: An attribute is unknown, or a value is of another kind.
    """
    if not isinstance(where, Mapping):
        raise ValueError(
            "`where` must be a dictionary from names of attributes to conditions. "
            f"Received: {shown(where)}."
        )
    for name, condition in where.items():
        if name not in kinds:
            raise ValueError(
                f"`where` must name attributes of the index, {shown(sorted(kinds))}. "
                f"Received: {shown(name)}."
            )
        if isinstance(condition, Not):
            condition = condition.condition
        for value in _values(condition):
            _check_value(name, value, kinds[name])


def _values(condition: Any) -> list[Any]:
    """List the values that a condition compares with, without NumPy's own types."""
    if isinstance(condition, Range):
        condition = [limit for limit in _limits(condition) if limit is not None]
    elif isinstance(condition, np.ndarray):
        condition = condition.tolist()
    is_one = isinstance(condition, str | bytes)
    if is_one or not isinstance(condition, Sequence | Set):
        condition = [condition]
    return [_unboxed(value) for value in condition]


def _limits(condition: Range) -> tuple[Any, Any]:
    return _unboxed(condition.least), _unboxed(condition.most)


def _unboxed(value: Any) -> Any:
    """Return a scalar of NumPy as Python's: those compare exactly."""
    return value.item() if isinstance(value, np.generic) else value


def _check_value(name: str, value: object, kind: str) -> None:
    is_number = _is_number(value) and value == value
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool | np.bool_),
        "integer": is_number,
        "number": is_number,
    }[kind]
    if not fits:
        raise ValueError(
            f"`where[{shown(name)}]` must compare with {kind}s, the kind of the "
            f"attribute. Received: {shown(value)}."
        )


def matching(
    where: Where, columns: Mapping[str, ColumnView], rows: int
) -> NDArray[np.bool_]:
    """Mark the rows that pass a filter.

    Args:
        where: A filter.
        columns: The attributes of the rows.
        rows: How many there are.

    Returns:
        Booleans `[rows]`.

    Raises:
        ValueError: As `check_where`.
    """
    check_where(where, {name: column.kind for name, column in columns.items()})
    passed = np.ones(rows, np.bool_)
    for name, condition in where.items():
        passed &= _holds(condition, columns[name])
    return passed


def _holds(condition: Any, column: ColumnView) -> NDArray[np.bool_]:
    if isinstance(condition, Not):
        return ~_holds(condition.condition, column)
    if not isinstance(condition, Range):
        return column.among(_values(condition))
    if column.kind == "string":
        return column.where_word(lambda word: _is_between(word, condition))
    return column.between(*_limits(condition))


def _is_between(word: str, limits: Range) -> bool:
    least, most = limits.least, limits.most
    return (least is None or str(least) <= word) and (most is None or word <= str(most))
