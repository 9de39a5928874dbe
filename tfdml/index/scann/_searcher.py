"""Call ScaNN with what it can handle.

On unchecked input the library (1.4.2) ends the process or answers with wrong ids.
`tfdml.index` checks values, shapes and `k`; this file takes care of what depends on
the settings: padded answers, sizes that would fill the memory, and lengths at which
hashing finds nothing. ScaNN's own saved ids are a pickle, so it is given none.
"""

import math
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfdml._core.embeddings import row_norms
from tfdml._core.parallel import cpu_cores
from tfdml.index._recall import MeasuredRecall
from tfdml.index.scann._library import import_scann
from tfdml.index.scann._settings import (
    LIMITS,
    REORDER_K,
    ScannLimits,
    ScannSettings,
    choose_settings,
    tree_training,
)
from tfdml.messages import cut, shortened

# Queries in a call from which on several threads answer them.
_WORTH_THREADS = 16


class PreparedRows:
    """A gallery as ScaNN is given it, for one build or several.

    Args:
        gallery: Embeddings `[N, D]`, finite, `N` at least 1; not modified.
        unit: Whether to search by cosine. If not, by inner product.
    """

    def __init__(self, gallery: NDArray[np.float32], *, unit: bool) -> None:
        norms = row_norms(gallery)
        self.unit = unit
        self.scale = 1.0 if unit else _typical_length(norms)
        lengths = norms if unit else np.full(len(gallery), self.scale)
        self.rows = _divide(gallery, lengths)


class ScannSearcher:
    """Nearest rows by cosine or inner product; takes checked float32 arrays only.

    Attributes:
        settings: How it searches.
        recall: What was measured, if anything was.
        scale: What rows that are not of unit length were divided by.
        threads: How many threads answer a batch.
    """

    def __init__(
        self,
        searcher: Any,
        settings: ScannSettings,
        *,
        unit: bool,
        scale: float,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
        limits: ScannLimits = LIMITS,
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.recall = recall
        self.scale = scale
        self.threads = cpu_cores() if threads is None else threads
        self._unit = unit
        self._searcher = searcher
        self._rows = int(searcher.size())
        self._kept: tuple[int, int, dict[str, int]] = (0, 0, {})  # for no `k`
        self._process = os.getpid()
        if self.threads > 1 and threads is None:
            # One thread less: the caller works too. With 0, ScaNN would crash.
            searcher.set_num_threads(self.threads - 1)

    @classmethod
    def build(
        cls, gallery: NDArray[np.float32], *, unit: bool, limits: ScannLimits = LIMITS
    ) -> Self:
        """Build with the settings that suit the gallery's size.

        Args:
            gallery: Embeddings `[N, D]`, finite, `N` at least 1; not modified.
            unit: Whether to search by cosine. If not, by inner product.
            limits: What depends on the size.
        """
        settings = choose_settings(len(gallery), unit=unit, limits=limits)
        return cls.of_rows(PreparedRows(gallery, unit=unit), settings)

    @classmethod
    def of_rows(cls, prepared: PreparedRows, settings: ScannSettings) -> Self:
        """Build with some settings; ScaNN copies the rows."""
        scann = import_scann()
        builder = scann.builder(prepared.rows, REORDER_K, "dot_product")
        if settings.method == "tree":
            builder = builder.tree(
                settings.leaves,
                settings.leaves_to_search,
                spherical=settings.spherical,
                **tree_training(settings.leaves),
            )
        if settings.method == "exact":
            builder = builder.score_brute_force()
        else:
            builder = builder.score_ah(
                settings.dimensions_per_block,
                anisotropic_quantization_threshold=settings.anisotropic_threshold,
            ).reorder(settings.reorder)
        built = builder.build()
        return cls(built, settings, unit=prepared.unit, scale=prepared.scale)

    def using(
        self,
        settings: ScannSettings,
        *,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Return a searcher that asks the same ScaNN in another way.

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
    def read(
        cls,
        data: Path,
        settings: ScannSettings,
        *,
        unit: bool,
        scale: float,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Read what `write` has written; the rest is that of the searcher then."""
        # ScaNN's load_searcher() also runs a pickle, `scann_docids.pkl`, where it
        # finds one. This is the rest of it.
        scann = import_scann()
        assets = (data / "scann_assets.pbtxt").read_text(encoding="utf-8")
        searcher = scann.ScannSearcher(scann.scann_pybind.ScannNumpy(str(data), assets))
        return cls(searcher, settings, unit=unit, scale=scale, recall=recall)

    def write(self, data: Path) -> None:
        """Write ScaNN's files into a folder."""
        try:
            # Absolute paths, the default, would read the original's files in a copy.
            self._searcher.serialize(str(data), relative_path=True)
        except RuntimeError as error:
            raise OSError(
                f"ScaNN cannot write to {cut(data)}: {shortened(error)}."
            ) from error

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
        lengths = norms if self._unit else _power_of_two(norms)
        queries = _divide(queries, lengths)
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
        if len(queries) == 1:  # in less time than a batch, and never padded
            row, score = self._searcher.search(queries[0], **settings)
            if len(row) == k:
                return row[None], score[None]
        rows, scores = self._call(queries, settings)
        # Where the parts searched hold fewer than k, id 0 and NaN follow.
        short = np.isnan(scores[:, -1])
        if short.any():
            every = dict(settings)
            if self.settings.method == "tree":
                every["leaves_to_search"] = self.settings.leaves
            rows[short], scores[short] = self._call(queries[short], every)
            if np.isnan(scores[:, -1]).any():
                raise RuntimeError(
                    f"ScaNN found fewer than k={k} of {self._rows} rows."
                )
        return rows, scores

    def _asked(self, k: int) -> tuple[int, dict[str, int]]:
        """Return how many queries to search for at once, and what to ask ScaNN for.

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

    def _call(
        self, queries: NDArray[np.float32], settings: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        found: tuple[NDArray[Any], NDArray[Any]]
        # The threads of ScaNN do not follow into a forked process.
        if (
            len(queries) < _WORTH_THREADS
            or self.threads == 1
            or self._process != os.getpid()
        ):
            found = self._searcher.search_batched(queries, **settings)
            return found
        # Several parts for each thread, as one may be held up.
        part = max(math.ceil(len(queries) / (4 * self.threads)), _WORTH_THREADS // 2)
        found = self._searcher.search_batched_parallel(
            queries, **settings, batch_size=part
        )
        return found


def _divide(
    array: NDArray[np.float32], lengths: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Divide rows in float64, many of them a buffer at a time."""
    if len(array) == 1:  # which takes less time without buffers
        return (array.astype(np.float64) / lengths[0]).astype(np.float32)
    out = np.empty_like(array)
    return np.divide(array, lengths[:, None], out=out, casting="same_kind")


def _typical_length(norms: NDArray[np.float64]) -> float:
    """Return what to divide a gallery by, so that ScaNN finds its vectors.

    Its training takes vectors of length 1e-5 for equal: recall@10 fell from 0.95 to
    0.03. Only a row 1e15 times as long as that would now come near float32's limit.
    """
    if not norms.any():
        return 1.0
    typical = np.maximum(np.median(norms[norms > 0]), norms.max() * 1e-15)
    return float(_power_of_two(typical))


def _power_of_two(lengths: Any) -> NDArray[np.float64]:
    """Return the power of two next above each length: dividing by it is exact."""
    return np.ldexp(1.0, np.frexp(lengths)[1])
