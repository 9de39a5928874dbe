"""Check ids, strings or integers, store them, and hand them out."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows._growing_array import GrowingArray
from tfdml.index.rows._texts import GrowingTexts, Texts, in_fixed_width
from tfdml.messages import shown

LONGEST_ID = 1_024
"""Characters of an id."""

Ids = Sequence[str] | Sequence[int] | NDArray[Any]
"""Ids of items: all strings, or all integers."""

StoredIds = NDArray[np.int64] | Texts
"""Ids of rows."""


def kind_of(ids: NDArray[Any] | Texts) -> str:
    """Return `"string"` or `"integer"`."""
    return "integer" if ids.dtype.kind == "i" else "string"


def stored(ids: NDArray[Any]) -> StoredIds:
    """Return ids that `read_ids` has returned as rows keep them."""
    return ids if kind_of(ids) == "integer" else Texts.of(ids)


def growing(ids: StoredIds) -> GrowingArray | GrowingTexts:
    """Return ids of rows that others can be added to."""
    return GrowingTexts(ids) if isinstance(ids, Texts) else GrowingArray(ids)


def handed_out(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids as callers get them: int64, or strings of fixed width.

    Where a few long ones would make that take 1 GiB more than all of them need, they
    are Python's own strings, in an array of objects.
    """
    return ids if kind_of(ids) == "integer" else in_fixed_width(ids)


def handed_out_rows(ids: StoredIds, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the ids of some rows as callers get them."""
    return ids.in_fixed_width(rows) if isinstance(ids, Texts) else ids[rows]


def check_ids(
    ids: Ids, *, kind: str | None = None, name: str = "ids", may_repeat: bool = False
) -> NDArray[Any]:
    """Return a copy of ids as an array of int64 or of fixed-width strings.

    Where a few long ones would make that take 1 GiB more than all of them need, strings
    are Python's own, in an array of objects.

    Args:
        ids: All strings or all integers. Strings have at most 1,024 characters of valid
            Unicode without NUL; integers fit int64.
        kind: What they must be: `"string"`, `"integer"`, or None for either. Of no ids
            at all it decides what they are (integers with None).
        name: The argument's name, for the error.
        may_repeat: Whether an id may be there twice.

    Raises:
        ValueError: They are not as stated above.
    """
    return handed_out(read_ids(ids, kind=kind, name=name, may_repeat=may_repeat))


def read_ids(
    ids: Ids, *, kind: str | None = None, name: str = "ids", may_repeat: bool = False
) -> NDArray[Any]:
    """Return ids as `check_ids` does, but all strings as Python's own.

    Such an array of objects takes no more memory where one of them is long.
    """
    values = _listed(ids, name)
    array = _as_array(values, name, kind)
    if kind is not None and kind_of(array) != kind:
        raise ValueError(
            f"`{name}` must be of the kind that the index has, {kind}s. "
            f"Received: {shown(values[0])}."
        )
    if not may_repeat and len(set(values)) != len(values):
        repeated, times = Counter(array.tolist()).most_common(1)[0]
        raise ValueError(
            f"`{name}` must not repeat. Received: {shown(repeated)} {times} times."
        )
    return array


def _listed(ids: Any, name: str) -> list[Any]:
    if isinstance(ids, set | frozenset):
        raise ValueError(
            f"`{name}` must be an ordered sequence, not a set. Pass a list."
        )
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(
            f"`{name}` must be a sequence of ids. Received: {shown(values)}. Pass one "
            f"id as [{shown(values)}]."
        )
    values = list(values)
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        raise ValueError(
            f"`{name}` must be a flat sequence of ids. Received: nested sequences."
        )
    return values


def _as_array(values: list[Any], name: str, kind: str | None) -> NDArray[Any]:
    if not values:
        return np.empty(0, np.object_ if kind == "string" else np.int64)
    if all(isinstance(value, str) for value in values):
        check_texts(f"`{name}`", values)
        longest = max(map(len, values))
        if longest > LONGEST_ID:
            raise ValueError(
                f"`{name}` must have at most {LONGEST_ID:,} characters each. "
                f"Received: one of {longest:,}. Use a shorter name, or its hash."
            )
        # Those of a derived type, such as NumPy's, as plain strings of the same text.
        return np.array([str.__str__(value) for value in values], np.object_)
    if all(
        isinstance(value, int | np.integer) and not isinstance(value, bool)
        for value in values
    ):
        try:
            # Of NumPy's own unsigned scalars, large ones would become negative.
            return np.array([int(value) for value in values], dtype=np.int64)
        except OverflowError:
            raise ValueError(
                f"`{name}` must fit int64; pass larger numbers as strings."
            ) from None
    kinds = sorted({type(value).__name__ for value in values})
    raise ValueError(
        f"`{name}` must be all strings or all integers. Received: {', '.join(kinds)}."
    )


def check_text(name: str, value: str) -> None:
    """Check that a string can be stored without a change.

    Args:
        name: What it is, for the error, such as "`ids`".
        value: The string.

    Raises:
        ValueError: It has a NUL, or half of a surrogate pair, which is not valid UTF-8.
    """
    # NumPy drops NULs at the end: "a" and "a\0" would become the same.
    if "\0" in value:
        raise ValueError(
            f"{name} must not contain the character NUL. Received: {shown(value)}."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} must be valid Unicode. Received: {shown(value)}, with half of a "
            "surrogate pair, as in the name of a file that is not UTF-8."
        ) from None


def check_texts(name: str, values: Collection[str]) -> None:
    """Check many strings at once; see `check_text`."""
    text = "".join(values)
    if "\0" not in text:
        with suppress(UnicodeEncodeError):
            text.encode()
            return
    for value in values:
        check_text(name, value)
