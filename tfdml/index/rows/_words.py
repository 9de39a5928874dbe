"""Keep each string of a column once, and give it a number."""

import threading
from collections.abc import Sequence
from itertools import filterfalse

import numpy as np
from numpy.typing import NDArray


class Words:
    """The strings of a column, each once; rows hold their numbers.

    One thread adds strings while others read. A string is there before its number is
    given out.

    Args:
        strings: Those that it holds to begin with, in order of their numbers.

    Attributes:
        strings: All of them; do not modify.
    """

    def __init__(self, strings: list[str]) -> None:
        self.strings = strings
        # Made when a number is asked for: for strings that all differ it costs more
        # than all the rest of a column.
        self._numbers: dict[str, int] | None = None
        self._lock = threading.Lock()

    def number(self, string: str) -> int:
        """Return the number of a string, -1 if it is not there."""
        numbers = self._numbers
        if numbers is None:
            with self._lock:
                numbers = self._numbered()
        return numbers.get(string, -1)

    def _numbered(self) -> dict[str, int]:
        if self._numbers is None:
            self._numbers = {word: number for number, word in enumerate(self.strings)}
        return self._numbers

    def add(self, strings: Sequence[str]) -> NDArray[np.int32]:
        """Add those of some strings that are not there, and return their numbers."""
        with self._lock:
            if not self.strings and len(set(strings)) == len(strings):
                self.strings.extend(strings)
                self._numbers = None
                return np.arange(len(strings), dtype=np.int32)
            numbers = self._numbered()
            new = list(filterfalse(numbers.__contains__, dict.fromkeys(strings)))
            first = len(self.strings)
            self.strings.extend(new)
            numbers.update(zip(new, range(first, first + len(new)), strict=True))
            found = map(numbers.__getitem__, strings)
            return np.fromiter(found, np.int32, len(strings))
