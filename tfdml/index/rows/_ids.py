"""Ids of items: strings or integers, and in which row each of them stands."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index._text import check_text

LONGEST_ID = 1_024
"""Characters: in arrays of strings, each takes as much memory as the longest."""

_MOST_WASTE = 2**30  # bytes that a few long ids cost the others

Ids = Sequence[str] | Sequence[int] | NDArray[Any]


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
            f"Received: {values[0]!r}."
        )
    if not may_repeat and len(set(values)) != len(values):
        unique, counts = np.unique(array, return_counts=True)
        raise ValueError(
            f"`{name}` must not repeat. Received: {unique[counts > 1][0].item()!r} "
            f"{counts[counts > 1][0]} times."
        )
    return array


def _listed(ids: Any, name: str) -> list[Any]:
    if isinstance(ids, set | frozenset):
        raise ValueError(
            f"`{name}` must be in an order, which a set has not. Pass a list."
        )
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(
            f"`{name}` must be a sequence of ids. Received: {values!r}. Pass one id as "
            f"[{values!r}]."
        )
    values = list(values)
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        raise ValueError(
            f"`{name}` must be a flat sequence of ids. Received: sequences in it."
        )
    return values


def _as_array(values: list[Any], name: str, kind: str | None) -> NDArray[Any]:
    if not values:
        return np.empty(0, np.dtype("U1") if kind == "string" else np.int64)
    if all(isinstance(value, str) for value in values):
        for value in values:
            check_text(f"`{name}`", value)
        longest = max(map(len, values))
        if longest > LONGEST_ID:
            raise ValueError(
                f"`{name}` must have at most {LONGEST_ID:,} characters each. "
                f"Received: one of {longest:,}. Take a shorter name, or its hash."
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
                f"`{name}` must fit int64; pass larger as strings."
            ) from None
    kinds = sorted({type(value).__name__ for value in values})
    raise ValueError(
        f"`{name}` must be all strings or all integers. Received: {', '.join(kinds)}."
    )


def check_widths(ids: NDArray[Any], *there: NDArray[Any]) -> None:
    """Refuse ids of which a few are so much longer than the others that memory is lost.

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
            "`ids` must not have few that are far longer than the others: in memory, "
            f"each takes as much as the longest. Received: one of {longest:,} "
            f"characters, for which {others + len(ids):,} ids would take "
            f"{waste / 1e9:.1f} GB more. Take a shorter name, or its hash."
        )


def _width(ids: NDArray[Any]) -> int:
    """Return how many characters each has room for."""
    return ids.dtype.itemsize // 4


class IdMap:
    """The row of each id. A gallery's own are sorted once, those added are hashed.

    An id that was removed keeps its row here: whether a row is still there, another
    knows. An id that is added again stands for its new row.

    Args:
        ids: Ids of the rows 0 to N - 1, none twice.
    """

    def __init__(self, ids: NDArray[Any]) -> None:
        self.ids = ids
        self._order: NDArray[np.int64] | None = None
        self._added: dict[str | int, int] = {}

    def sort(self) -> NDArray[np.int64]:
        """Sort the gallery's own ids, which the first call of `rows` else waits for."""
        if self._order is None:
            self._order = np.argsort(self.ids, kind="stable")
        return self._order

    def append(self, ids: NDArray[Any], first_row: int) -> None:
        """Take up the ids of the rows from `first_row` on."""
        self._added.update(
            zip(ids.tolist(), range(first_row, first_row + len(ids)), strict=True)
        )

    def reset(self, ids: NDArray[Any]) -> None:
        """Forget all that were added, and take up these, which were added first."""
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
