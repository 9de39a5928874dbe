"""Grow an array at its end while others read its beginning."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class GrowingArray:
    """Rows that are added in amortised constant time, by one thread at a time.

    It does not know how many rows count: who writes says where. So rows of a change
    that failed are written over by the next one. What `first` returned stays as it was:
    rows are written behind it, or into a new array.

    Args:
        rows: What it holds to begin with; not copied, and not written to.
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows = rows

    def put(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows of the same shape and dtype behind the first `start` ones."""
        end = start + len(rows)
        if end > len(self._rows):
            capacity = max(end, start + start // 2, 64)
            grown = np.empty((capacity, *self._rows.shape[1:]), self._rows.dtype)
            grown[:start] = self._rows[:start]
            self._rows = grown
        self._rows[start:end] = rows

    def first(self, size: int) -> NDArray[Any]:
        """Return the first rows, read-only, as they stay."""
        view = self._rows[:size].view()
        view.flags.writeable = False
        return view

    def copied(self, size: int) -> "GrowingArray":
        """Return the first rows as an array of its own, with room for a few more."""
        copy = GrowingArray(self._rows[:0])
        copy._rows = np.empty((size + 64, *self._rows.shape[1:]), self._rows.dtype)
        copy._rows[:size] = self._rows[:size]
        return copy

    def set(self, places: NDArray[np.int64], value: Any) -> None:
        """Write over rows. What `first` returned before shows it."""
        if len(places):  # what it was given may be read-only
            self._rows[places] = value
