"""Count the memory that images take while a batch of them is decoded."""

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ImageCosts:
    """The memory for the images of a request.

    Attributes:
        rows: int64 `[rows]`, the bytes for the images of each row.
        at_once: How many rows the model decodes at one time, at least 1.
    """

    rows: np.ndarray
    at_once: int

    def largest(self, start: int = 0, stop: int | None = None) -> list[int]:
        """Return the bytes of the largest rows, as many as are decoded at one time."""
        part = self.rows[start:stop]
        if len(part) > self.at_once:
            part = np.partition(part, -self.at_once)[-self.at_once :]
        return [int(size) for size in part]

    def cut(self, most_rows: int, most_bytes: int) -> list[int]:
        """Return the rows of pieces that take no more memory than they may.

        Args:
            most_rows: Most rows of a piece, at least 1.
            most_bytes: Memory for a piece. One row that takes more is one by itself.

        Returns:
            The number of rows of each piece.
        """
        if int(self.rows.max()) * min(self.at_once, most_rows) <= most_bytes:
            return even_pieces(len(self.rows), most_rows)
        sizes, size, largest = [], 0, [0]
        for cost in self.rows.tolist():
            together = heapq.nlargest(self.at_once, [*largest, cost])
            if size and (size == most_rows or sum(together) > most_bytes):
                sizes.append(size)
                size, together = 0, [cost]
            size, largest = size + 1, together
        return [*sizes, size]


def even_pieces(rows: int, most_rows: int) -> list[int]:
    """Return the rows of pieces of a request that is cut by its rows alone."""
    whole, rest = divmod(rows, most_rows)
    return [most_rows] * whole + [rest] * bool(rest)


def peak_bytes(largest: Iterable[Iterable[int]], at_once: int) -> int:
    """Return the memory of a batch from the largest rows of each of its pieces."""
    return sum(heapq.nlargest(at_once, itertools.chain.from_iterable(largest)))
