"""Check ids, strings or integers, and map each to its row."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.messages import shown

LONGEST_ID = 1_024
"""Characters: in arrays of strings, each takes as much memory as the longest."""

_MOST_WASTE = 2**30  # bytes that a few long ids cost the others

Ids = Sequence[str] | Sequence[int] | NDArray[Any]
"""Ids of items: all strings, or all integers."""


def kind_of(ids: NDArray[Any]) -> str:
    """Return `"string"` or `"integer"`."""
    return "string" if ids.dtype.kind == "U" else "integer"


def check_ids(
    ids: Ids, *, kind: str | None = None, name: str = "ids", may_repeat: bool = False
) -> NDArray[Any]:
    """Return ids as an array of our own, int64 or strings of fixed width.

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
    values = _listed(ids, name)
    array = _as_array(values, name, kind)
    if kind is not None and kind_of(array) != kind:
        raise ValueError(
            f"`{name}` must be of the kind that the index has, {kind}s. "
            f"Received: {shown(values[0])}."
        )
    if not may_repeat and len(set(values)) != len(values):
        unique, counts = np.unique(array, return_counts=True)
        raise ValueError(
            f"`{name}` must not repeat. Received: "
            f"{shown(unique[counts > 1][0].item())} {counts[counts > 1][0]} times."
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
        return np.empty(0, np.dtype("U1") if kind == "string" else np.int64)
    if all(isinstance(value, str) for value in values):
        check_texts(f"`{name}`", values)
        longest = max(map(len, values))
        if longest > LONGEST_ID:
            raise ValueError(
                f"`{name}` must have at most {LONGEST_ID:,} characters each. "
                f"Received: one of {longest:,}. Use a shorter name, or its hash."
            )
        return np.array(values, dtype=np.str_)
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


def check_widths(ids: NDArray[Any], *there: NDArray[Any]) -> None:
    """Check that no few ids are so long that they cost the others much memory.

    Args:
        ids: Checked ids that come.
        there: Those that they come to, and will share an array with.

    Raises:
        ValueError: More than 1 GiB would be lost.
    """
    if ids.dtype.kind != "U" or not len(ids):
        return
    longest = _width(ids)
    others = sum(map(len, there))
    waste = 4 * others * max(0, longest - max(map(_width, there), default=0))
    if waste + 4 * len(ids) * longest > _MOST_WASTE:
        characters = sum(map(len, ids.tolist()))
        waste += 4 * (len(ids) * longest - characters)
    if waste > _MOST_WASTE:
        raise ValueError(
            "`ids` must be of similar length: in memory, each takes as much as the "
            f"longest. Received: one of {longest:,} characters, for which "
            f"{others + len(ids):,} ids would take {waste / 1e9:.1f} GB more. Use a "
            "shorter name, or its hash."
        )


def _width(ids: NDArray[Any]) -> int:
    """Return how many characters each has room for."""
    return ids.dtype.itemsize // 4


class IdMap:
    """The row of each id. A gallery's own are sorted once, those added are hashed.

    An id that was removed keeps its row here: the table knows which rows were removed.
    An id that is added again leads to its new row.

    Args:
        ids: Ids of the rows 0 to N - 1, without repetition.
    """

    def __init__(self, ids: NDArray[Any]) -> None:
        self.ids = ids
        self._order: NDArray[np.int64] | None = None
        self._added: dict[str | int, int] = {}

    def sort(self) -> NDArray[np.int64]:
        """Sort the gallery's own ids, so that the first call of `rows` need not."""
        if self._order is None:
            self._order = np.argsort(self.ids, kind="stable")
        return self._order

    def append(self, ids: NDArray[Any], first_row: int) -> None:
        """Add the ids of the rows from `first_row` on."""
        self._added.update(
            zip(ids.tolist(), range(first_row, first_row + len(ids)), strict=True)
        )

    def reset(self, ids: NDArray[Any]) -> None:
        """Forget all added ids, and start again with these, the first to be added."""
        self._added = {}
        self.append(ids, len(self.ids))

    def rows(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each id, -1 where there was never one."""
        found = np.full(len(ids), -1, np.int64)
        if len(self.ids):
            order = self.sort()
            # In another width, NumPy would first copy all that are sorted.
            narrow = ids.astype(self.ids.dtype)
            places = np.searchsorted(self.ids, narrow, sorter=order)
            candidates = order[np.minimum(places, len(self.ids) - 1)]
            same = self.ids[candidates] == ids
            found[same] = candidates[same]
        if self._added:
            for place, value in enumerate(ids.tolist()):
                found[place] = self._added.get(value, found[place])
        return found
