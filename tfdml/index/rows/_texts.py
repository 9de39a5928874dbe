"""Keep strings in one UTF-8 text: each takes as much memory as it is long.

NumPy's strings of variable width (`StringDType`) would do this too, but in NumPy 2.4.6
`searchsorted` answers wrongly on them, and files cannot hold them without pickle.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tfdml.index.rows._growing_array import GrowingArray

_AT_ONCE = 65_536  # strings that are decoded at once
_FEW = 64  # strings, which are decoded one by one as fast
_LAST_ASCII = 127
_MOST_TIMES = 4  # as many bytes as the strings have may be looked at
_MOST_WASTE = 2**30  # bytes that a few long strings may cost the others


def in_fixed_width(strings: NDArray[Any]) -> NDArray[Any]:
    """Return an array of Python's strings as one of NumPy's.

    Where a few long ones would make it 1 GiB larger, it stays as it is.
    """
    values = strings.reshape(-1).tolist()
    lengths = [*map(len, values)]
    longest = max(lengths, default=0)
    if _waste(longest, len(values), sum(lengths)) > _MOST_WASTE:
        return strings
    return np.array(values, f"U{max(1, longest)}").reshape(strings.shape)


def _waste(longest: int, count: int, characters: int) -> int:
    """Return how many bytes of an array of fixed width say nothing."""
    return 4 * (longest * count - characters)


class Texts:
    """Strings without NUL, in one array of bytes; it stays as it is.

    Rows are taken by number, like those of an array of objects.

    Args:
        text: The strings as UTF-8, each followed by a NUL, uint8 `[B]`.
        ends: Where each ends, behind its NUL, int64 `[N]`.
    """

    dtype = np.dtype(object)

    def __init__(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.text = text
        self.ends = ends
        self._bytes = text.data

    @classmethod
    def of(cls, values: Iterable[str]) -> "Texts":
        """Return strings, which hold no NUL and are valid Unicode."""
        joined = "\0".join([*values, ""]).encode()
        text = np.frombuffer(joined, np.uint8)
        return cls(text, np.flatnonzero(text == 0) + 1)

    @classmethod
    def read(cls, text: NDArray[np.uint8]) -> "Texts":
        """Return the strings of a text from a file.

        Raises:
            ValueError: It does not end with a NUL, or is not UTF-8.
        """
        if len(text) and text[-1] != 0:
            raise ValueError("a text does not end with NUL")
        texts = cls(text, np.flatnonzero(text == 0) + 1)
        for start in range(0, len(texts), _AT_ONCE):
            texts._joined(start, min(start + _AT_ONCE, len(texts)))
        return texts

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the strings in some rows, Python's own, in the shape of `rows`."""
        flat = rows.reshape(-1)
        found = np.empty(len(flat), object)
        if len(flat) > 1 and (np.diff(flat) == 1).all():
            first, end = int(flat[0]), int(flat[-1]) + 1
            for start in range(first, end, _AT_ONCE):
                stop = min(start + _AT_ONCE, end)
                strings = self._joined(start, stop).split("\0")
                found[start - first : stop - first] = strings
        else:
            starts, lengths = self._places(flat)
            ends, text = (starts + lengths).tolist(), self._bytes
            found[:] = [
                str(text[start:end], "utf-8")
                for start, end in zip(starts.tolist(), ends, strict=True)
            ]
        return found.reshape(rows.shape)

    def in_fixed_width(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the strings in some rows, as `in_fixed_width` of all of them does.

        For ASCII of similar length, no string is made on the way.
        """
        flat = rows.reshape(-1)
        if len(flat) < _FEW:
            return in_fixed_width(self[rows])
        starts, lengths = self._places(flat)
        longest, size = int(lengths.max(initial=1)), int(lengths.sum())
        is_wide = len(flat) * longest > _MOST_TIMES * size
        if is_wide or _waste(longest, len(flat), size) > _MOST_WASTE:
            return in_fixed_width(self[rows])
        codes = np.empty((len(flat), longest), np.uint32)
        for first in range(0, len(flat), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            letters = self._letters(starts[part], lengths[part], longest)
            if letters.max() > _LAST_ASCII:
                return in_fixed_width(self[rows])
            codes[part] = letters
        return codes.view(f"U{longest}").reshape(rows.shape)

    def _letters(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], longest: int
    ) -> NDArray[np.uint8]:
        """Return the bytes of some strings, zeros where one is shorter."""
        windows = sliding_window_view(self.text, longest)
        beyond = np.maximum(starts - (len(windows) - 1), 0)
        letters: NDArray[np.uint8] = windows[starts - beyond]
        for row in np.flatnonzero(beyond):  # the last strings of the text
            first, length = beyond[row], lengths[row]
            letters[row, :length] = letters[row, first : first + length].copy()
        letters[np.arange(longest) >= lengths[:, None]] = 0
        return letters

    def _places(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where strings begin, and how many bytes they have."""
        starts = np.where(rows > 0, self.ends[rows - 1], 0)
        return starts, self.ends[rows] - starts - 1

    def parts(self) -> Iterator[list[str]]:
        """Yield all strings in lists, not all at once."""
        for start in range(0, len(self), _AT_ONCE):
            stop = min(start + _AT_ONCE, len(self))
            yield self._joined(start, stop).split("\0")

    def _joined(self, start: int, stop: int) -> str:
        """Return strings that follow each other, with NULs between them."""
        first = int(self.ends[start - 1]) if start else 0
        return str(self._bytes[first : int(self.ends[stop - 1]) - 1], "utf-8")


class GrowingTexts:
    """Strings that are added at the end; see `GrowingArray`.

    Args:
        texts: What it holds to begin with; not copied.
    """

    def __init__(self, texts: Texts) -> None:
        self._text = GrowingArray(texts.text)
        self._ends = GrowingArray(texts.ends)

    def put(self, start: int, values: NDArray[Any]) -> None:
        """Write strings behind the first `start` ones."""
        new = Texts.of(values)
        first = self._size(start)
        self._text.put(first, new.text)
        self._ends.put(start, first + new.ends)

    def first(self, size: int) -> Texts:
        """Return the first strings, as they stay."""
        return Texts(self._text.first(self._size(size)), self._ends.first(size))

    def _size(self, count: int) -> int:
        """Return how many bytes the first strings have."""
        return int(self._ends.first(count)[-1]) if count else 0
