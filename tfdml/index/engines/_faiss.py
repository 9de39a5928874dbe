"""Search with FAISS: inverted lists and 4-bit codes, the best of them scored again.

Its own threads are OpenMP's. On macOS, those end the process where another library has
loaded OpenMP too, as scikit-learn and torch do (faiss-wheels#73). So each call works on
the thread of its caller, and threads of ours answer a batch.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tfdml._core.parallel import cpu_cores, in_threads
from tfdml.index._recall import MeasuredRecall
from tfdml.index.engines._coded import WORTH_THREADS, CodedSearcher
from tfdml.index.engines._prepared import PreparedRows
from tfdml.index.engines._settings import IndexSettings
from tfdml.messages import shortened

_CODES = "faiss_codes.npy"


class FaissSearcher(CodedSearcher):
    """Searches with FAISS; see `CodedSearcher`."""

    engine = "faiss"

    @classmethod
    def of_rows(cls, prepared: PreparedRows, settings: IndexSettings) -> Self:
        """See `CodedSearcher.of_rows`."""
        faiss = import_faiss()
        rows = _of_even_width(prepared.rows)
        width = rows.shape[1]
        name = f"PQ{width // settings.dimensions_per_block}x4fs"
        if settings.method == "tree":
            name = f"IVF{settings.leaves},{name}"
        codes = faiss.index_factory(width, name, faiss.METRIC_INNER_PRODUCT)
        # A gallery has enough rows; a test may have few, and FAISS would print so.
        codes.pq.cp.min_points_per_centroid = 1
        if settings.method == "tree":
            codes.cp.min_points_per_centroid = 1
            codes.cp.spherical = settings.spherical
        # Between the steps of a training all threads wait for each other.
        with faiss_threads(faiss, 1 if sys.platform == "darwin" else cpu_cores()):
            codes.train(rows)
            codes.add(rows)
        searcher = _Refined(faiss, codes, rows)
        return cls(searcher, settings, unit=prepared.unit, scale=prepared.scale)

    @classmethod
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
        """See `CodedSearcher.read`."""
        faiss = import_faiss()
        codes = faiss.deserialize_index(np.load(data / _CODES, allow_pickle=False))
        rows = _of_even_width(PreparedRows(gallery, unit=unit).rows)
        if (codes.ntotal, codes.d) != rows.shape:
            raise ValueError(f"{_CODES} is of {codes.ntotal} x {codes.d} numbers")
        searcher = _Refined(faiss, codes, rows)
        return cls(searcher, settings, unit=unit, scale=scale, recall=recall)

    def write(self, data: Path) -> None:
        """See `CodedSearcher.write`."""
        faiss = import_faiss()
        # Written by NumPy: FAISS opens no path with letters beyond ASCII on Windows.
        codes = faiss.serialize_index(self._searcher.codes)
        np.save(data / _CODES, codes, allow_pickle=False)

    def _size(self) -> int:
        return int(self._searcher.codes.ntotal)

    def _call(
        self, queries: NDArray[np.float32], settings: dict[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        queries = _of_even_width(queries)
        k = settings["final_num_neighbors"]
        asked = self._searcher.asked(
            k, settings["pre_reorder_num_neighbors"], settings.get("leaves_to_search")
        )
        rows = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)

        def search(part: slice) -> None:
            scores[part], rows[part] = self._searcher.search(queries[part], k, asked)

        if self._is_for_threads(queries):
            in_threads(search, len(queries), least=WORTH_THREADS // 2)
        else:
            search(slice(None))
        missing = rows < 0
        rows[missing], scores[missing] = 0, np.nan
        return rows, scores

    def _of_all(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        # Of many rows with one code FAISS finds few, or none.
        scores, rows = self._searcher.search_all(_of_even_width(queries), k)
        return rows, scores


class _Refined:
    """Codes in FAISS, and the rows that score the best of them again.

    Args:
        faiss: The library.
        codes: What holds the codes.
        rows: float32 `[N, D]`; FAISS copies them.
    """

    def __init__(self, faiss: Any, codes: Any, rows: NDArray[np.float32]) -> None:
        self._faiss = faiss
        self.codes = codes
        self._rows = faiss.IndexFlatIP(rows.shape[1])
        self._rows.add(rows)
        # It keeps neither of them.
        self._whole = faiss.IndexRefine(codes, self._rows)

    def asked(self, k: int, candidates: int, lists: int | None) -> Any:
        """Return what to pass to `search`: FAISS' own parameters of one call."""
        base = None if lists is None else self._faiss.IVFSearchParameters(nprobe=lists)
        # FAISS cuts the product of `k` and this factor off.
        factor = (candidates + 0.5) / k
        return self._faiss.IndexRefineSearchParameters(
            k_factor=factor, base_index_params=base
        )

    def search(
        self, queries: NDArray[np.float32], k: int, asked: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores and rows `[Q, k]`, -1 for rows that were not found."""
        with faiss_threads(self._faiss, 1):
            found: tuple[NDArray[np.float32], NDArray[np.int64]] = self._whole.search(
                queries, k, params=asked
            )
        return found

    def search_all(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Do as `search` does by comparing with all rows."""
        with faiss_threads(self._faiss, 1):
            found: tuple[NDArray[np.float32], NDArray[np.int64]] = self._rows.search(
                queries, k
            )
        return found


@contextmanager
def faiss_threads(faiss: Any, count: int) -> Iterator[None]:
    """Have FAISS use so many threads for calls of this thread."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _of_even_width(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows with a column of zeros where a pair of numbers lacks one."""
    return np.pad(rows, ((0, 0), (0, 1))) if rows.shape[1] % 2 else rows


def import_faiss() -> Any:
    """Return FAISS.

    Raises:
        ImportError: It cannot be imported here.
    """
    if sys.platform == "darwin":
        # As scikit-learn does: a second OpenMP would end the process at once.
        os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "True")
    try:
        import faiss
    except Exception as error:  # a broken library raises anything
        raise ImportError(
            f"FAISS cannot be imported here ({type(error).__name__}: "
            f'{shortened(error)}). Install it with: pip install "tfdml[faiss]".'
        ) from error
    return faiss
