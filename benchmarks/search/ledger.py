"""Check the answers of an index that changes."""

import collections
import threading
import time

import numpy as np
from numpy.typing import NDArray

_TOLERANCE = 1e-5  # of a score: float32 sums of up to a thousand products
_MOST_EXAMPLES = 20
_BLOCK = 8  # queries whose scores are held at once


class Ledger:
    """When each item was in the index, by what its only writer did.

    Written by one thread, read by any. An id is the number of a row.

    Args:
        rows: Embeddings of all items that will ever be there: unit vectors, float32
            `[N, D]`.
        items: How many of them are there from the beginning.
    """

    def __init__(self, rows: NDArray[np.float32], items: int) -> None:
        self.rows = rows
        self._added = np.full(len(rows), np.inf)
        self._added[:items] = -np.inf
        self._removed = np.full(len(rows), np.inf)

    def adding(self, ids: NDArray[np.int64]) -> None:
        """Note that items are added from now on; before the call."""
        self._added[ids] = time.perf_counter()

    def removed(self, ids: NDArray[np.int64]) -> None:
        """Note that items are no longer there; after the call."""
        self._removed[ids] = time.perf_counter()

    def ids(self) -> NDArray[np.int64]:
        """Return the ids that are there, while nothing is changed."""
        return np.flatnonzero(self._there())

    def _there(self) -> NDArray[np.bool_]:
        return (self._added < np.inf) & (self._removed == np.inf)

    def wrong(
        self,
        queries: NDArray[np.float32],
        k: int,
        ids: NDArray[np.int64],
        scores: NDArray[np.float32],
        start: float,
        end: float,
    ) -> str | None:
        """Return what is wrong with the answer to a search; None if nothing is.

        Args:
            queries: Unit vectors `[Q, D]`.
            k: How many hits there must be.
            ids: That came, `[Q, k]`.
            scores: That came, `[Q, k]`.
            start: When the call began, by `time.perf_counter`.
            end: When it ended. Each hit must have been there in between.
        """
        shape = len(queries), k
        if ids.shape != shape or scores.shape != shape:
            return f"{ids.shape} ids and {scores.shape} scores came, not {shape}"
        if ids.min() < 0 or ids.max() >= len(self.rows):
            return f"there is no id {ids.min()} or {ids.max()}"
        if (np.diff(np.sort(ids, axis=1), axis=1) == 0).any():
            return "an id came twice"
        absent = (self._added[ids] > end) | (self._removed[ids] < start)
        if absent.any():
            return f"{ids[absent][0]} was not there"
        exact = np.einsum(
            "qd,qkd->qk", queries.astype(np.float64), self.rows[ids].astype(np.float64)
        )
        if not (apart := np.abs(exact - scores).max()) <= _TOLERANCE:  # also NaN
            return f"a score is wrong by {apart:.1e}"
        if (np.diff(scores, axis=1) > 0).any():
            return "the best does not come first"
        return None

    def recall(
        self, queries: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return which share of the true neighbors were found, while nothing changes.

        Args:
            queries: Unit vectors `[Q, D]`.
            ids: That were found, `[Q, k]`.

        Returns:
            The share for each query, `[Q]`.
        """
        absent = ~self._there()
        shares = np.empty(len(queries))
        for start in range(0, len(queries), _BLOCK):
            block = slice(start, start + _BLOCK)
            scores = queries[block] @ self.rows.T
            scores[:, absent] = -np.inf
            k = ids.shape[1]
            true = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            found = (ids[block, :, None] == true[:, None, :]).any(axis=2)
            shares[block] = found.mean(axis=1)
        return shares


class Tally:
    """Counts answers; used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()
        self.examples: list[str] = []
        self.single_ms: list[float] = []
        """How long searches with one query took."""

    def answered(self, queries: int, seconds: float, wrong: str | None) -> None:
        """Count an answer.

        Args:
            queries: Of the call.
            seconds: It took.
            wrong: What is wrong with it, or None.
        """
        with self._lock:
            self.counts["calls"] += 1
            self.counts["queries"] += queries
            if queries == 1:
                self.single_ms.append(1000 * seconds)
        if wrong is not None:
            self.failed("wrong", wrong)

    def failed(self, kind: str, what: str) -> None:
        """Count a wrong answer or an exception."""
        with self._lock:
            self.counts[kind] += 1
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.append(f"{kind}: {what}")
