"""View the values of one attribute at one moment, and test conditions on them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows._words import Words

_FEW = 16  # values, with each of which all rows are compared

Scalar = str | int | float | bool

TYPES: dict[str, type[Scalar]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
}
"""The kinds of attributes, and what Python has for each."""


def _exactly(kind: str, value: Any) -> int | float | None:
    """Return a number in the kind of a column, None where none there equals it."""
    try:
        converted = int(value) if kind == "integer" else float(value)
    except OverflowError:  # an infinity, or beyond what a float holds
        return None
    if kind == "integer" and not -(2**63) <= converted < 2**63:
        return None
    return converted if converted == value else None


def _limit(kind: str, value: Any, *, upwards: bool) -> int | float:
    """Return the next number in the kind of a column; NumPy would round it."""
    infinity = math.inf if upwards else -math.inf
    if kind == "integer" and value not in (math.inf, -math.inf):
        return math.ceil(value) if upwards else math.floor(value)
    try:
        converted = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    is_beyond = converted < value if upwards else converted > value
    return math.nextafter(converted, infinity) if is_beyond else converted


class ColumnView:
    """The values of one attribute in the first rows of a table."""

    def __init__(
        self,
        kind: str,
        values: NDArray[Any],
        known: NDArray[np.bool_],
        words: Words,
    ) -> None:
        self.kind = kind
        self.values = values
        self.known = known
        self._words = words

    def values_at(self, rows: NDArray[np.int64]) -> list[Scalar | None]:
        """Return the values in some rows, None where there is none."""
        found: list[Any] = self.values[rows].tolist()
        if self.kind == "string":
            # A missing value has the number 0, and there may be no word.
            words = self._words.strings or [""]
            found = [words[number] for number in found]
        known = self.known[rows]
        if not known.all():
            for place in np.flatnonzero(~known).tolist():
                found[place] = None
        return found

    def among(self, values: Sequence[Any]) -> NDArray[np.bool_]:
        """Mark the rows that have one of some values, given in the column's kind."""
        if self.kind == "string":
            numbers = [self._words.number(str(value)) for value in values]
            values = [number for number in numbers if number >= 0]
        elif self.kind != "boolean":
            exact = [_exactly(self.kind, value) for value in values]
            values = [value for value in exact if value is not None]
        wanted = np.array(values, self.values.dtype)
        if len(wanted) > _FEW and self.kind == "string":
            passed = np.zeros(len(self._words.strings), np.bool_)
            passed[wanted] = True
            return np.take(passed, self.values) & self.known
        if len(wanted) > _FEW:
            same: NDArray[np.bool_] = np.isin(self.values, wanted)
        else:  # by far the fastest
            same = np.zeros(len(self.values), np.bool_)
            for value in wanted:
                same |= self.values == value
        return same & self.known

    def between(self, least: Any, most: Any) -> NDArray[np.bool_]:
        """Mark the rows with a number in a range, None for no limit."""
        marked: NDArray[np.bool_] = self.known.copy()
        if least is not None:
            marked &= self.values >= _limit(self.kind, least, upwards=True)
        if most is not None:
            marked &= self.values <= _limit(self.kind, most, upwards=False)
        return marked

    def where_word(self, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Mark the rows with a string of which something holds."""
        words = list(self._words.strings)  # others add to it meanwhile
        passed = np.array([holds(word) for word in words] or [False], np.bool_)
        marked: NDArray[np.bool_] = passed[self.values] & self.known
        return marked
