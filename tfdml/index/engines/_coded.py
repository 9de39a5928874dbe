"""Ask a library that compares with codes of the rows only what it can handle.

`tfdml.index` checks values, shapes and `k`; this file takes care of what depends on the
settings: padded answers, sizes that would fill the memory, and lengths at which codes
find nothing.
"""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tfdml._core.embeddings import row_norms
from tfdml._core.parallel import cpu_cores
from tfdml.index._recall import MeasuredRecall
from tfdml.index.engines._prepared import PreparedRows, divided, power_of_two
from tfdml.index.engines._settings import LIMITS, Engine, EngineLimits, IndexSettings

WORTH_THREADS = 16
"""Queries in a call from which on several threads answer them."""


class CodedSearcher(ABC):
    """Nearest rows by cosine or inner product; takes checked float32 arrays only.

    Attributes:
        engine: The library.
        settings: How it searches.
        recall: What was measured, if anything was.
        scale: What rows that are not of unit length were divided by.
        threads: How many threads answer a batch.
    """

    engine: ClassVar[Engine]

    def __init__(
        self,
        searcher: Any,
        settings: IndexSettings,
        *,
        unit: bool,
        scale: float,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
        limits: EngineLimits = LIMITS,
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.recall = recall
        self.scale = scale
        self.threads = cpu_cores() if threads is None else threads
        self._unit = unit
        self._searcher = searcher
        self._rows = self._size()
        self._kept: tuple[int, int, dict[str, int]] = (0, 0, {})  # for no `k`
        self._process = os.getpid()

    @classmethod
    @abstractmethod
    def of_rows(cls, prepared: PreparedRows, settings: IndexSettings) -> Self:
        """Build with some settings; the library copies the rows.

        Raises:
            ImportError: It cannot be imported.
        """

    def using(
        self,
        settings: IndexSettings,
        *,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Return a searcher that asks the same library in another way.

        Args:
            settings: Of the same method, leaves and codes.
            threads: At most those of this searcher. Default: as many.
            recall: What was measured of it.
        """
        return type(self)(
            self._searcher,
            settings,
            unit=self._unit,
            scale=self.scale,
            threads=self.threads if threads is None else threads,
            recall=recall,
        )

    @classmethod
    @abstractmethod
    def read(
        cls,
        data: Path,
        settings: IndexSettings,
        gallery: NDArray[np.float32],
        *,
        unit: bool,
        scale: float,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Read what `write` has written; the rest is that of the searcher then.

        Raises:
            ImportError: The library cannot be imported.
        """

    @abstractmethod
    def write(self, data: Path) -> None:
        """Write the library's files into a folder."""

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        norms: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and scores `[Q, k]`, best first, for `k` from 1 to the rows.

        `norms`, the lengths of the queries `[Q]`, save a pass where they are at hand.
        """
        return self._nearest(queries, k, self._asked(k), norms)

    def nearest_others(
        self, queries: NDArray[np.float32], own: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the `k` nearest rows of queries that are rows, without themselves.

        As many others are scored exactly, in as many leaves, as for a query that is
        not a row: one candidate more than `nearest` has for `k`, where `nearest` for
        `k + 1` would have a share more.

        Args:
            queries: `[Q, D]`.
            own: The row that each query is, `[Q]`.
            k: Below the number of rows.
        """
        asked = self._asked_for(k, own=1)
        rows, scores = self._nearest(queries, k + 1, asked, None)
        is_own = rows == own[:, None]
        # Where a query did not find itself, the last one goes.
        is_own[~is_own.any(axis=1), -1] = True
        return rows[~is_own].reshape(-1, k), scores[~is_own].reshape(-1, k)

    def _nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        asked: tuple[int, dict[str, int]],
        norms: NDArray[np.float64] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        norms = row_norms(queries) if norms is None else norms
        lengths = norms if self._unit else power_of_two(norms)
        queries = divided(queries, lengths)
        step, settings = asked
        if len(queries) <= step:
            found, scores = self._block(queries, k, settings)
            rows = found.astype(np.int64)
        else:
            rows = np.empty((len(queries), k), np.int64)
            scores = np.empty((len(queries), k), np.float32)
            for start in range(0, len(queries), step):
                block = slice(start, start + step)
                rows[block], scores[block] = self._block(queries[block], k, settings)
        if not self._unit:
            with np.errstate(over="ignore"):  # reported below
                scores = (scores * (lengths * self.scale)[:, None]).astype(np.float32)
            if not np.isfinite(scores).all():
                raise ValueError(
                    "A `dot_product` score is too large for float32: scale the "
                    "embeddings down."
                )
        return rows, scores

    def _block(
        self, queries: NDArray[np.float32], k: int, settings: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        rows, scores = self._call(queries, settings)
        # Where the parts searched hold fewer than k, NaN follows.
        short = np.isnan(scores[:, -1])
        if short.any():
            every = dict(settings)
            if self.settings.method == "tree":
                every["leaves_to_search"] = self.settings.leaves
            rows[short], scores[short] = self._call(queries[short], every)
            short = np.isnan(scores[:, -1])
            if short.any():
                rows[short], scores[short] = self._of_all(queries[short], k)
        return rows, scores

    def _of_all(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Answer queries for which the codes of all rows have led to too few."""
        raise RuntimeError(f"The search found fewer than k={k} of {self._rows} rows.")

    def _asked(self, k: int) -> tuple[int, dict[str, int]]:
        """Return how many queries to search for at once, and what to ask for.

        Kept for the last `k`: a single search would notice the time it takes.
        """
        kept, step, settings = self._kept
        if kept == k:
            return step, settings
        step, settings = self._asked_for(k)
        self._kept = k, step, settings  # one step: other threads read it too
        return step, settings

    def _asked_for(self, k: int, own: int = 0) -> tuple[int, dict[str, int]]:
        """Do as `_asked` does, with `own` more rows than it takes to find `k`."""
        candidates = min(self.settings.candidates(k, self._rows) + own, self._rows)
        settings = {"final_num_neighbors": k + own}
        if self.settings.method != "exact":
            settings["pre_reorder_num_neighbors"] = candidates
        if self.settings.method == "tree":
            settings["leaves_to_search"] = self.settings.leaves_for(k, self._rows)
        return max(1, self.limits.block_candidates // candidates), settings

    def _is_for_threads(self, queries: NDArray[np.float32]) -> bool:
        """Return whether several threads should answer."""
        # The threads of a library do not follow into a forked process.
        return (
            len(queries) >= WORTH_THREADS
            and self.threads > 1
            and self._process == os.getpid()
        )

    @abstractmethod
    def _size(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def _call(
        self, queries: NDArray[np.float32], settings: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Search; the scores of missing rows are NaN."""
