"""Score queries against gallery rows so that rounding changes no order.

A float32 matrix product scores everything fast and bounds its own error. What that
leaves undecided is scored again in float64, pair by pair. The product alone is not
enough: the same row may score differently in another position of a BLAS call, so that
equal rows would not tie.
"""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tfdml._core.arguments import one_of
from tfdml._core.devices import has_gpu, is_out_of_memory
from tfdml._core.embeddings import row_norms
from tfdml._core.exact_search._gpu import GpuOriginals, GpuRows
from tfdml._core.exact_search._pairs import Pairs
from tfdml._core.parallel import in_threads

Metric = Literal["cosine", "dot_product", "squared_euclidean"]
"""How queries are compared with a gallery."""


@dataclass(frozen=True)
class SearchLimits:
    """How much a search computes at once, and when it uses threads or a GPU.

    The answers do not depend on it.

    Args:
        block_scores: Scores held at once: by default 32 MiB in float32.
        least_queries: Queries of a block, however large the gallery: a product of fewer
            waits for the gallery's memory.
        gathered_numbers: Numbers gathered at once to be scored in float64: by default
            1 MiB for queries and gallery each, which a core keeps at hand.
        gpu_multiplications: Multiplications that are worth a GPU.
        gpu_scores: Scores that a GPU holds at once: by default 1 GiB.
        most_gpu_queries: Queries that it compares at once, however small the gallery.
        gpu_spare: Candidates beyond k that a GPU is asked for at most: some may tie.
        thread_scores: Scores that are worth a thread.
        least_maxima: Parts of a long row whose maxima are taken, at least: NumPy is
            slow on shorter ones.
        long_row: Gallery rows from which on ranks are counted in threads.
        few_positives: Positives of a query up to which they are counted one by one: of
            more, a sorted row counts faster.
    """

    block_scores: int = 2**23
    least_queries: int = 64
    gathered_numbers: int = 2**17
    gpu_multiplications: int = 2**33
    gpu_scores: int = 2**28
    most_gpu_queries: int = 2**11
    gpu_spare: int = 64
    thread_scores: int = 2**20
    least_maxima: int = 1024
    long_row: int = 2**18
    few_positives: int = 64


USUAL_LIMITS = SearchLimits()


_AFTER_ROUNDING = 1 + float(np.finfo(np.float32).eps)  # the length of a unit vector


class _Prepared(NamedTuple):
    """Rows whose inner products rank the gallery."""

    rows: NDArray[Any]
    norms: NDArray[np.float64]
    """Their lengths; for cosines, no less than these."""


class GpuQueries(NamedTuple):
    """Queries in the form in which a GPU compares them with a gallery."""

    rows: NDArray[np.float32]
    """What `GpuRows` takes, `[Q, D]`."""
    slack: NDArray[np.float64]
    """Of two rows whose numbers lie further apart, the higher is better, `[Q]`."""
    scale: NDArray[np.float64]
    """No number of the query is larger, `[Q]`."""
    base: NDArray[np.float64]
    """Its scores are this plus the number, or minus it for distances, `[Q]`."""
    is_known: NDArray[np.bool_]
    """Whether its numbers cannot overflow; rows of others are zeros, `[Q]`."""

    def part(self, rows: slice) -> "GpuQueries":
        """Return some of them."""
        return GpuQueries(
            self.rows[rows],
            self.slack[rows],
            self.scale[rows],
            self.base[rows],
            self.is_known[rows],
        )


class PreparedGallery:
    """A gallery made ready once for many searches.

    Args:
        gallery: Embeddings `[N, D]` that `as_embeddings` has checked; not copied, and
            not to be changed afterwards. A row of zeros has the cosine similarity 0
            with all others.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        limits: How much is computed at once.

    Raises:
        ValueError: The metric is not known.
    """

    def __init__(
        self,
        gallery: NDArray[np.float32],
        metric: Metric,
        limits: SearchLimits = USUAL_LIMITS,
    ) -> None:
        self.metric: Metric = one_of("metric", metric, get_args(Metric))
        self.sign = -1 if metric == "squared_euclidean" else 1
        """1 if higher scores are better, else -1."""
        self.gallery = gallery
        self.limits = limits
        self._norms = row_norms(self.gallery)
        self._center = np.zeros(self.gallery.shape[1])
        if metric == "squared_euclidean" and len(self.gallery):
            self._center = self.gallery.mean(axis=0, dtype=np.float64)
        self._columns = self._prepare(self.gallery, np.dtype(np.float32))
        self._sharp: _Prepared | None = None
        self._on_gpu: GpuRows | None = None
        self._originals: GpuOriginals | None = None
        self._has_room = True

    def __len__(self) -> int:
        """Return the number of gallery rows."""
        return len(self.gallery)

    def queries_at_once(self) -> int:
        """Return how many queries `products` should be asked for in one call."""
        limits = self.limits
        return max(limits.least_queries, limits.block_scores // max(1, len(self)))

    def products(
        self, queries: NDArray[np.float32], *, sharp: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Score everything, the better the higher, with a bound of the error.

        Args:
            queries: Checked queries `[Q, D]`.
            sharp: Whether to compute in float64, not in float32.

        Returns:
            Numbers `[Q, N]` that rank the gallery for each query, the caller's own,
            and `slack [Q]`: of two rows whose numbers lie further apart than that, the
            higher has the better score by `scores`, and they do not tie.
        """
        product, error, scale = self._products(queries, sharp=sharp)
        if not _is_known(scale, product.dtype).all():
            product[:] = 0  # it overflowed, and knows nothing
        return product, _slack(error, scale)

    def on_gpu(self, queries: int) -> GpuRows | None:
        """Return the gallery on a GPU for so many queries.

        Returns:
            None where there is no GPU, it would not pay, or what it would hold at once
            is more than it can number.
        """
        count, dimension = self.gallery.shape
        if queries * count * dimension < self.limits.gpu_multiplications:
            return None
        if not has_gpu() or not GpuRows.can_hold(count, self.gpu_queries(queries)):
            return None
        if self._on_gpu is None and self._has_room:
            right = self._columns
            if not _is_known(right.norms**2, right.rows.dtype).all():
                return None
            is_distance = self.metric == "squared_euclidean"
            offsets = (right.norms**2).astype(np.float32) if is_distance else None
            try:
                self._on_gpu = GpuRows(right.rows, offsets)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._has_room = False
                self.warn_of_memory()
        return self._on_gpu

    def warn_of_memory(self) -> None:
        """Warn that the memory of the GPU is not enough."""
        warnings.warn(
            "The GPU has too little memory left for exact search: the CPU does the "
            f"rest, more slowly ({len(self)} embeddings of the dimension "
            f"{self.gallery.shape[1]}). `SearchLimits(gpu_scores=...)` bounds the "
            "scores held at once.",
            stacklevel=2,
        )

    def originals_on_gpu(self) -> GpuOriginals | None:
        """Return the gallery on the GPU as it was given, None where it has no room."""
        if self._originals is None and self._has_room:
            is_distance = self.metric == "squared_euclidean"
            try:
                self._originals = GpuOriginals(self.gallery, is_distance=is_distance)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._has_room = False
        return self._originals

    def gpu_queries(self, queries: int) -> int:
        """Return how many of some queries a GPU compares with the gallery at once.

        It is a power of 2, so that compilers see few shapes.
        """
        limits = self.limits
        most = limits.gpu_scores // max(1, len(self))
        most = max(limits.least_queries, min(limits.most_gpu_queries, most, queries))
        return 1 << (most.bit_length() - 1)

    def for_gpu(
        self, queries: NDArray[np.float32], chosen: NDArray[np.int64] | slice
    ) -> "GpuQueries":
        """Prepare some of the queries for `on_gpu`."""
        if queries is self.gallery:
            left = _Prepared(self._columns.rows[chosen], self._columns.norms[chosen])
        else:
            left = self._prepare(queries[chosen], np.dtype(np.float32))
        error, scale = self._error(left, self._columns)
        rows, is_known = left.rows, _is_known(scale, left.rows.dtype)
        if not is_known.all():
            rows = np.where(is_known[:, None], rows, np.float32(0))
            error, scale = (np.where(is_known, side, 0) for side in (error, scale))
        base = left.norms**2 if self.sign < 0 else np.zeros(len(rows))
        return GpuQueries(rows, _slack(error, scale), scale, base, is_known)

    def _products(
        self, queries: NDArray[np.float32], *, sharp: bool
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
        """Return what ranks the gallery, how far it may be off, and how large it is."""
        right = self._columns
        if sharp:
            if self._sharp is None:
                self._sharp = self._prepare(self.gallery, np.dtype(np.float64))
            right = self._sharp
        dtype = right.rows.dtype
        left = self._prepare(queries, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            product = left.rows @ right.rows.T
            if self.metric == "squared_euclidean":
                product *= 2
                product -= (right.norms**2).astype(dtype)
        return product, *self._error(left, right)

    def _error(
        self, left: _Prepared, right: _Prepared
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how far each query's numbers may be off, and how large they are."""
        largest = right.norms.max()
        scale = left.norms * largest
        if self.metric == "squared_euclidean":
            scale = (left.norms + largest) ** 2
        # A sum of D products, in whatever order, is off by at most D roundings of
        # |q||g|, and those of these roundings; 8 more pay for preparing and for adding
        # the norms. Pairs are scored in float64: a product in it is as far off as they.
        info, roundings = np.finfo(right.rows.dtype), 8 + self.gallery.shape[1]
        if info.bits == 64:
            roundings *= 2
        unit = roundings * float(info.eps) / 2
        error = unit / (1 - unit) * scale + roundings * float(info.tiny)
        return error, scale

    def scores(
        self,
        queries: NDArray[np.float32],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        sums: NDArray[Any] | None = None,
    ) -> NDArray[np.float32]:
        """Score pairs in float64, each on its own, and round to float32.

        Args:
            queries: Checked queries `[Q, D]`.
            rows: Which query each pair has, `[P]`.
            columns: Which gallery row, `[P]`.
            sums: What a GPU added up for each, `[P]`; the scores are the same.

        Returns:
            Similarities, or distances for `"squared_euclidean"`, `[P]`.

        Raises:
            ValueError: A score is too large for float32.
        """
        pairs = Pairs(
            self.metric,
            queries,
            self.gallery,
            self._norms,
            rows,
            columns,
            self.limits.gathered_numbers,
        )
        if sums is None or sums.dtype != np.float64:
            return pairs.scores()
        return pairs.rounded(sums)

    def all_scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score every query with every gallery row, just as `scores` does.

        For embeddings that have collapsed: scoring all pairs each on its own would take
        hours. A float64 product leaves few in doubt about their rounding to float32.

        Args:
            queries: Checked queries `[Q, D]`.

        Returns:
            float32 `[Q, N]`.

        Raises:
            ValueError: As `scores`.
        """
        product, error, _ = self._products(queries, sharp=True)
        if self.metric == "squared_euclidean":
            lengths = self._prepare(queries, np.dtype(np.float64)).norms
            product = (lengths**2)[:, None] - product
        with np.errstate(over="ignore"):
            scores = (product - error[:, None]).astype(np.float32)
            doubtful = scores != (product + error[:, None]).astype(np.float32)
        doubtful |= ~np.isfinite(scores)
        rows, columns = np.nonzero(doubtful)
        scores[rows, columns] = self.scores(queries, rows, columns)
        return scores

    def _prepare(self, array: NDArray[np.float32], dtype: np.dtype[Any]) -> _Prepared:
        """Bring rows into the form whose inner products rank the gallery."""
        if self.metric == "dot_product":
            rows = array.astype(dtype, copy=False)
        else:
            rows = np.empty(array.shape, dtype)
        lengths = np.empty(len(rows))
        norms_of = self._norms if array is self.gallery else None

        def prepare(part: slice) -> None:
            if self.metric == "cosine":
                known = row_norms(array[part]) if norms_of is None else norms_of[part]
                norms = np.where(known > 0, known, 1)[:, None]
                np.divide(array[part], norms, out=rows[part], casting="same_kind")
                lengths[part] = np.where(known > 0, _AFTER_ROUNDING, 0)
                return
            if self.metric == "squared_euclidean":
                # Distances do not change when all are moved, and stay sharp for
                # embeddings that lie close together and far from the origin.
                with np.errstate(over="ignore"):  # found out by the lengths
                    np.subtract(
                        array[part], self._center, out=rows[part], casting="same_kind"
                    )
            lengths[part] = row_norms(rows[part])

        few = max(1, self.limits.thread_scores // max(1, array.shape[1]))
        in_threads(prepare, len(array), least=few)
        return _Prepared(rows, lengths)


def _is_known(scale: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Return which products of that size cannot have overflowed."""
    known: NDArray[np.bool_] = scale < np.finfo(dtype).max / 8
    return known


def _slack(
    error: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the difference above which the higher number has the better score."""
    # Final scores are rounded to float32, and those that are then equal tie.
    final = np.finfo(np.float32)
    return 2 * error + float(final.eps) * scale + float(final.tiny)


def leave_out(
    numbers: NDArray[Any], exclude: NDArray[np.int64], worst: float = -np.inf
) -> None:
    """Give the rows that each query leaves out the worst number, in place.

    Args:
        numbers: A number for each query and gallery row, `[Q, N]`.
        exclude: Those rows, `[Q, m]`, -1 for none.
        worst: That number.
    """
    rows, places = np.nonzero(exclude >= 0)
    numbers[rows, exclude[rows, places]] = worst
