"""Search with one short code for each row, and score a shortlist with whole rows.

The codes are FAISS': the first dimensions as they are, 8 bits for each number, or its
sign. They are compared with all of them. The whole rows are those of the index itself,
which may be in a file; only those of a shortlist are read.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tfdml._core.embeddings import row_norms, unit_or_zero
from tfdml._core.exact_search import Pairs
from tfdml._core.parallel import cpu_cores, in_threads
from tfdml.index._recall import MeasuredRecall
from tfdml.index.engines._coded import WORTH_THREADS
from tfdml.index.engines._faiss import faiss_threads, import_faiss
from tfdml.index.engines._prepared import divided, typical_length
from tfdml.index.engines._settings import Engine, IndexSettings
from tfdml.neighbors import Metric

_FILE = "faiss_codes.npy"
_NUMBERS = 2**23  # of whole rows that are gathered at once: 32 MiB
_SUMMED = 2**18  # numbers that are widened to float64 at once


class RescoredSearcher:
    """Nearest rows by codes of all and scores of the best; see `CodedSearcher`.

    Its scores are those of exact search, to the last bit, and rows of equal score come
    in the order of the gallery.

    Args:
        codes: What holds the codes.
        gallery: Embeddings `[N, D]`, finite; not copied.
        settings: Those of codes.
        metric: `"cosine"` or `"dot_product"`.
        threads: How many threads answer a batch. Default: one per core.
        recall: What was measured, if anything was.
    """

    engine: ClassVar[Engine] = "faiss"
    scale = 1.0

    def __init__(
        self,
        codes: Any,
        gallery: NDArray[np.float32],
        settings: IndexSettings,
        *,
        metric: Metric,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
    ) -> None:
        self.settings = settings
        self.recall = recall
        self.threads = cpu_cores() if threads is None else threads
        self._codes = codes
        self._gallery = gallery
        self._metric: Metric = metric
        self._process = os.getpid()

    @classmethod
    def of_rows(
        cls, gallery: NDArray[np.float32], settings: IndexSettings, *, metric: Metric
    ) -> Self:
        """Build with some settings.

        Raises:
            ImportError: FAISS cannot be imported.
        """
        faiss = import_faiss()
        rows = _shortened(gallery, settings, metric)
        codes = _MAKERS[settings.codes](faiss, rows.shape[1])
        with faiss_threads(faiss, 1):
            codes.train(rows)
            codes.add(rows)
        return cls(codes, gallery, settings, metric=metric)

    def using(
        self,
        settings: IndexSettings,
        *,
        threads: int | None = None,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Return a searcher with the same codes and another shortlist."""
        return type(self)(
            self._codes,
            self._gallery,
            settings,
            metric=self._metric,
            threads=self.threads if threads is None else threads,
            recall=recall,
        )

    @classmethod
    def read(
        cls,
        data: Path,
        settings: IndexSettings,
        gallery: NDArray[np.float32],
        *,
        metric: Metric,
        recall: MeasuredRecall | None = None,
    ) -> Self:
        """Read what `write` has written; the rest is that of the searcher then.

        Raises:
            ImportError: FAISS cannot be imported.
            ValueError: The file is of other rows.
        """
        faiss = import_faiss()
        codes = faiss.deserialize_index(np.load(data / _FILE, allow_pickle=False))
        expected = len(gallery), settings.code_dimensions or gallery.shape[1]
        if (codes.ntotal, codes.d) != expected:
            raise ValueError(f"{_FILE} is of {codes.ntotal} x {codes.d} numbers")
        return cls(codes, gallery, settings, metric=metric, recall=recall)

    def write(self, data: Path) -> None:
        """Write the codes into a folder."""
        faiss = import_faiss()
        # Written by NumPy: FAISS opens no path with letters beyond ASCII on Windows.
        codes = faiss.serialize_index(self._codes)
        np.save(data / _FILE, codes, allow_pickle=False)

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        norms: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See `CodedSearcher.nearest`."""
        return self._nearest(queries, k, None)

    def nearest_others(
        self, queries: NDArray[np.float32], own: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See `CodedSearcher.nearest_others`."""
        return self._nearest(queries, k, own)

    def _nearest(
        self, queries: NDArray[np.float32], k: int, own: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        count = len(self._gallery)
        extra = 0 if own is None else 1
        candidates = min(self.settings.candidates(k, count) + extra, count)
        step = max(1, _NUMBERS // (candidates * self._gallery.shape[1]))
        codes = _shortened(queries, self.settings, self._metric)
        rows = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)

        def answer(part: slice) -> None:
            for start in range(part.start, part.stop, step):
                block = slice(start, min(start + step, part.stop))
                found = self._shortlist(codes[block], candidates)
                if own is not None:
                    found = _without(found, own[block])
                rows[block], scores[block] = self._rescored(queries[block], found, k)

        # The threads of a library do not follow into a forked process.
        if self.threads > 1 and self._process == os.getpid():
            in_threads(answer, len(queries), least=WORTH_THREADS // 2)
        else:
            answer(slice(0, len(queries)))
        return rows, scores

    def _shortlist(
        self, codes: NDArray[np.float32], candidates: int
    ) -> NDArray[np.int64]:
        """Return the rows with the nearest codes, `[Q, candidates]`."""
        with faiss_threads(import_faiss(), 1):
            _, found = self._codes.search(codes, candidates)
        rows: NDArray[np.int64] = found
        return rows

    def _rescored(
        self, queries: NDArray[np.float32], found: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the best `k` of the rows found for each query, and their scores."""
        found = np.sort(found, axis=1)  # equal scores come in the gallery's order
        distinct, places = np.unique(found, return_inverse=True)
        near = self._gallery[distinct]
        which = np.repeat(np.arange(len(queries)), found.shape[1])
        pairs = Pairs(
            self._metric, queries, near, row_norms(near), which, places.ravel(), _SUMMED
        )
        scores = pairs.scores().reshape(found.shape)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(found, order, axis=1)
        return rows, np.take_along_axis(scores, order, axis=1)


def _shortened(
    rows: NDArray[np.float32], settings: IndexSettings, metric: Metric
) -> NDArray[np.float32]:
    """Return what codes are made of: the first numbers, at a usual length."""
    cut = np.ascontiguousarray(rows[:, : settings.code_dimensions or None])
    if metric == "cosine":
        return unit_or_zero(cut)
    # Products of large numbers would not fit into float32.
    return divided(cut, np.full(len(cut), typical_length(row_norms(cut))))


def _without(found: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Leave one row out of each line: its own, or the last where that is missing."""
    is_own = found == own[:, None]
    is_own[~is_own.any(axis=1), -1] = True
    return found[~is_own].reshape(len(found), -1)


def _whole(faiss: Any, width: int) -> Any:
    return faiss.IndexFlatIP(width)


def _int8(faiss: Any, width: int) -> Any:
    kind = faiss.ScalarQuantizer.QT_8bit
    return faiss.IndexScalarQuantizer(width, kind, faiss.METRIC_INNER_PRODUCT)


def _binary(faiss: Any, width: int) -> Any:
    # Whether a number is above the median of its column: of numbers that are never
    # negative, as pooled features, the sign says nothing.
    return faiss.IndexLSH(width, width, False, True)


_MAKERS: dict[str, Callable[[Any, int], Any]] = {
    "float32": _whole,
    "int8": _int8,
    "binary": _binary,
}
