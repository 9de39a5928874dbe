"""Scores of queries and gallery rows that rounding cannot turn round.

A float32 matrix product scores everything fast, and says how far it may be off. What
that leaves open is scored again in float64, pair by pair. A fast product alone would
not do: the same row may score differently in another position of a BLAS call, so equal
rows would not tie.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._arguments import one_of
from tfdml._devices import has_gpu
from tfdml._embeddings import as_embeddings, row_norms
from tfdml.neighbors._gpu import GpuRows

Metric = Literal["cosine", "dot_product", "squared_euclidean"]

_BLOCK_ELEMENTS = 2**23  # scores held at once: 32 MiB in float32
_LEAST_AT_ONCE = 64  # of fewer queries, a product waits for the gallery's memory
_WORTH_A_GPU = 2**30  # multiplications
_GATHER_ELEMENTS = 2**21  # numbers gathered at once to be scored in float64


class _Prepared(NamedTuple):
    """Rows whose inner products rank the gallery, and their lengths."""

    rows: NDArray[Any]
    norms: NDArray[np.float64]


class PreparedGallery:
    """A gallery made ready once for many searches.

    Args:
        gallery: Embeddings `[N, D]`, real and finite. A float32 array is not copied,
            and must not be changed afterwards.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        zero_rows: Whether rows of zeros are allowed with `"cosine"`: their similarity
            with all others is 0.

    Raises:
        ValueError: As `tfdml._embeddings.as_embeddings`, or the metric is not known.
    """

    def __init__(
        self, gallery: ArrayLike, metric: Metric, *, zero_rows: bool = False
    ) -> None:
        self.metric: Metric = one_of("metric", metric, get_args(Metric))
        self._refuses_zeros = metric == "cosine" and not zero_rows
        self.gallery = as_embeddings("gallery", gallery, unit=self._refuses_zeros)
        self._norms = row_norms(self.gallery)
        self._center = np.zeros(self.gallery.shape[1])
        if metric == "squared_euclidean" and len(self.gallery):
            self._center = self.gallery.mean(axis=0, dtype=np.float64)
        self._columns = self._prepare(self.gallery, np.dtype(np.float32))
        self._sharp: _Prepared | None = None
        self._on_gpu: GpuRows | None = None

    def __len__(self) -> int:
        """Return the number of gallery rows."""
        return len(self.gallery)

    def checked_queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Return queries in float32.

        Raises:
            ValueError: As `as_embeddings`, or not of the dimension of the gallery.
        """
        rows = as_embeddings("queries", queries, unit=self._refuses_zeros)
        if rows.shape[1] != self.gallery.shape[1]:
            raise ValueError(
                "`queries` must have the dimension of the gallery, "
                f"{self.gallery.shape[1]}. Received: {rows.shape[1]}."
            )
        return rows

    def queries_at_once(self) -> int:
        """Return how many queries `products` should be asked for in one call."""
        return max(_LEAST_AT_ONCE, _BLOCK_ELEMENTS // max(1, len(self)))

    def products(
        self, queries: NDArray[np.float32], *, sharp: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Score everything, the better the higher, and tell how sure that is.

        Args:
            queries: Checked queries `[Q, D]`.
            sharp: Whether to compute in float64, not in float32.

        Returns:
            Numbers `[Q, N]` that rank the gallery for each query, the caller's own,
            and `slack [Q]`: of two rows whose numbers lie further apart than that, the
            higher has the better score by `scores`, and they do not tie.
        """
        product, error, scale = self._products(queries, sharp=sharp)
        if not _is_known(scale, product.dtype):
            product[:] = 0  # it overflowed, and knows nothing
        return product, _slack(error, scale)

    def best(
        self, queries: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]] | None:
        """Return the best numbers of `products`, found on a GPU.

        Args:
            queries: Checked queries `[Q, D]`.
            count: How many of each query, at most the gallery's rows.

        Returns:
            Numbers in falling order and their gallery rows, `[Q, count]`, and the slack
            `[Q]` of these numbers; None where there is no GPU, it would not pay, or
            numbers overflow.
        """
        if queries.size * len(self) < _WORTH_A_GPU or not has_gpu():
            return None
        right, left = self._columns, self._prepare(queries, np.dtype(np.float32))
        error, scale = self._error(left, right)
        if not _is_known(scale, right.rows.dtype):
            return None
        if self._on_gpu is None:
            is_distance = self.metric == "squared_euclidean"
            offsets = (right.norms**2).astype(np.float32) if is_distance else None
            self._on_gpu = GpuRows(right.rows, offsets)
        numbers, columns = self._on_gpu.best(left.rows, count)
        return numbers, columns, _slack(error, scale)

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
        # A sum of D products is off by at most about D roundings of |q||g|; 8 more
        # pay for preparing and for adding the norms.
        info, roundings = np.finfo(right.rows.dtype), 8 + self.gallery.shape[1]
        error = roundings * (float(info.eps) / 2 * scale + float(info.tiny))
        return error, scale

    def scores(
        self,
        queries: NDArray[np.float32],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score pairs in float64, each on its own, and round to float32.

        Args:
            queries: Checked queries `[Q, D]`.
            rows: Which query each pair has, `[P]`.
            columns: Which gallery row, `[P]`.

        Returns:
            Similarities, or distances for `"squared_euclidean"`, `[P]`.

        Raises:
            ValueError: A score is too large for float32.
        """
        scores = np.empty(len(rows), np.float64)
        step = max(1, _GATHER_ELEMENTS // self.gallery.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            left = queries[rows[part]].astype(np.float64)
            right = self.gallery[columns[part]].astype(np.float64)
            if self.metric == "squared_euclidean":
                left -= right
                right = left
            scores[part] = np.einsum("nd,nd->n", left, right)
        if self.metric == "cosine":
            lengths = row_norms(queries)[rows] * self._norms[columns]
            scores /= np.where(lengths > 0, lengths, 1)
        with np.errstate(over="ignore"):
            rounded = scores.astype(np.float32)
        if not np.isfinite(rounded).all():
            raise ValueError(
                f"A `{self.metric}` score is too large for float32: scale the "
                "embeddings down."
            )
        return rounded

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
        rows = np.empty(array.shape, dtype)
        if self.metric == "cosine":
            norms = row_norms(array)[:, None]
            norms[norms == 0] = 1
            np.divide(array, norms, out=rows, casting="same_kind")
        elif self.metric == "squared_euclidean":
            # Distances do not change when all are moved, and stay sharp for
            # embeddings that lie close together and far from the origin.
            with np.errstate(over="ignore"):  # found out by the lengths
                np.subtract(array, self._center, out=rows, casting="same_kind")
        else:
            rows = array.astype(dtype, copy=False)
        return _Prepared(rows, row_norms(rows))


def _is_known(scale: NDArray[np.float64], dtype: np.dtype[Any]) -> bool:
    """Whether products of that size cannot have overflowed."""
    return bool((scale < np.finfo(dtype).max / 8).all())


def _slack(
    error: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return from which difference on two numbers tell who has the better score."""
    # Final scores are rounded to float32, and those that are then equal tie.
    final = np.finfo(np.float32)
    return 2 * error + float(final.eps) * scale + float(final.tiny)


def check_exclude(
    exclude: ArrayLike | None, queries: int, gallery: int
) -> NDArray[np.int64]:
    """Check which gallery rows each query must leave out.

    Args:
        exclude: Integers `[Q]` or `[Q, m]`, the rows of each query, -1 for none; `None`
            for none at all.
        queries: Number of queries, Q.
        gallery: Number of gallery rows.

    Returns:
        int64 `[Q, m]`.

    Raises:
        ValueError: The shape or dtype is wrong, or a row is out of range.
    """
    if exclude is None:
        return np.empty((queries, 0), np.int64)
    rows = np.asarray(exclude)
    if rows.dtype.kind not in "iu" or rows.ndim > 2 or rows.shape[:1] != (queries,):
        raise ValueError(
            f"`exclude` must hold integers, [Q] or [Q, m], for the {queries} queries. "
            f"Received: dtype={rows.dtype}, shape={rows.shape}."
        )
    if rows.size and (int(rows.min()) < -1 or int(rows.max()) >= gallery):
        raise ValueError(
            f"`exclude` must be -1 or a gallery row below {gallery}. "
            f"Received: values from {rows.min()} to {rows.max()}."
        )
    return rows.reshape(queries, -1).astype(np.int64)


def leave_out(
    numbers: NDArray[Any], exclude: NDArray[np.int64], worst: float = -np.inf
) -> None:
    """Give the rows that each query leaves out the worst number, in place.

    Args:
        numbers: A number for each query and gallery row, `[Q, N]`.
        exclude: What `check_exclude` returned, `[Q, m]`.
        worst: That number.
    """
    rows, places = np.nonzero(exclude >= 0)
    numbers[rows, exclude[rows, places]] = worst
