"""Exact nearest neighbours: what metrics and approximate search are checked against.

A float32 matrix product finds, block by block, every gallery row that rounding
could let into the answer; those few are scored again in float64. A fast product
alone would not do: the same row may score differently in another position of a
BLAS call, so equal rows would not tie.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["nearest_neighbors"]

Metric = Literal["cosine", "dot_product", "squared_euclidean"]

_BLOCK_ELEMENTS = 2**23  # scores held at once: 32 MiB in float32
_GATHER_ELEMENTS = 2**21  # numbers gathered at once to be scored in float64


def nearest_neighbors(
    queries: ArrayLike,
    gallery: ArrayLike,
    k: int,
    *,
    metric: Metric = "cosine",
    exclude: ArrayLike | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the `k` nearest gallery rows of every query, by comparing with all.

    With a query `q` and a gallery row `g`:

    - `"cosine"`: `sum(q * g) / (|q| |g|)`, the highest first
    - `"dot_product"`: `sum(q * g)`, the highest first
    - `"squared_euclidean"`: `sum((q - g)^2)`, the lowest first

    Inputs are read as float32. Each score is computed in float64 and rounded to
    float32; rows whose rounded scores are equal come in the order of their index.
    The answer to a query depends neither on the other queries nor on where a row
    stands in the gallery. (Where more than a 64th of the gallery and more than `4 k`
    rows score alike in float32, as when embeddings have collapsed, cosines and dot
    products may be off by a rounding of float64 before they are rounded.)

    Memory, beside the inputs: a copy of the gallery in float32, one in float64 while
    many scores nearly tie, and a few blocks of about 64 MiB, or of one row of scores
    if that is more.

    Args:
        queries: Embeddings `[Q, D]`, real and finite. `Q` may be 0.
        gallery: Embeddings `[N, D]`, real and finite.
        k: How many rows to return, from 1 to the number of rows allowed.
        metric: `"cosine"` (default), `"dot_product"` or `"squared_euclidean"`.
        exclude: Integers `[Q]`: the one gallery row that each query must never
            return, such as the query itself; -1 for none. Default: none at all.

    Returns:
        Indices into the gallery, int64 `[Q, k]`, and their scores (distances for
        `"squared_euclidean"`), float32 `[Q, k]`.

    Raises:
        ValueError: A shape, value or dtype is wrong; `k` is below 1 or above the
            number of gallery rows allowed; a zero vector with `"cosine"`; a score
            that float32 cannot hold.
        TypeError: `k` is not an integer.

    Example:
        >>> import numpy as np
        >>> from tfdml.neighbors import nearest_neighbors
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
        >>> indices, scores = nearest_neighbors([[3.0, 0.0]], gallery, k=2)
        >>> indices.tolist(), scores.tolist()
        ([[0, 2]], [[1.0, 1.0]])
    """
    return PreparedGallery(gallery, metric).nearest(queries, k, exclude)


def as_embeddings(name: str, values: Any, *, unit: bool) -> NDArray[np.float32]:
    """Check that `values` are embeddings `[rows, D]` and return them in float32.

    Args:
        name: The argument's name, for the error.
        values: Real finite numbers of rank 2, of any float or integer dtype.
        unit: Whether the rows will be scaled to unit length, so that a row of
            zeros has no meaning.

    Returns:
        Row-major float32 `[rows, D]`; the array itself where it is that already.

    Raises:
        ValueError: It is not of rank 2, not real, has no columns, a NaN, an
            infinity, or (with `unit`) a row of zeros.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"`{name}` must be an array [rows, D]: {error}.") from error
    if array.dtype.kind not in "fiu":
        raise ValueError(
            f"`{name}` must hold real numbers. Received: dtype={array.dtype}."
        )
    if array.ndim != 2 or array.shape[1] == 0:
        remedy = " Pass one vector as vector[None, :]." if array.ndim == 1 else ""
        raise ValueError(
            f"`{name}` must have the shape [rows, D], D at least 1. "
            f"Received: shape={array.shape}.{remedy}"
        )
    with np.errstate(over="ignore"):  # reported below, with the row
        array = np.ascontiguousarray(array, dtype=np.float32)
    # A finite sum of squares in float64 proves every number finite, in one pass.
    squares = np.einsum("nd,nd->n", array, array, dtype=np.float64)
    if not np.isfinite(squares).all():
        row = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise ValueError(
            f"`{name}` must be finite in float32. Received: NaN or infinity in row "
            f"{row}."
        )
    if unit and not squares.all():
        row = int(np.flatnonzero(squares == 0)[0])
        raise ValueError(
            f"`{name}` must not have a row of zeros: its cosine is not defined. "
            f"Received: zeros in row {row}. Leave that row out."
        )
    return array


def row_norms(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return the length of each row, summed in float64."""
    return np.sqrt(np.einsum("nd,nd->n", array, array, dtype=np.float64))


def unit_or_zero(array: NDArray[Any]) -> NDArray[np.float32]:
    """Scale each row to length 1, float32; rows of zeros stay."""
    norms = row_norms(array)[:, None]
    rows = np.empty(array.shape, np.float32)
    return np.divide(
        array, np.where(norms > 0, norms, 1), out=rows, casting="same_kind"
    )


def check_k(k: int, allowed: int) -> None:
    """Refuse a `k` that is not an integer from 1 to `allowed`.

    Raises:
        TypeError: `k` is not an integer.
        ValueError: `k` is out of range.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"`k` must be an integer. Received: k={k!r}.")
    if not 1 <= k <= allowed:
        raise ValueError(
            f"`k` must be from 1 to {allowed}, the gallery rows that a query may "
            f"return. Received: k={k}."
        )


def _check_exclude(
    exclude: ArrayLike | None, queries: int, gallery: int
) -> NDArray[np.int64]:
    if exclude is None:
        return np.full(queries, -1, np.int64)
    rows = np.asarray(exclude)
    if rows.dtype.kind not in "iu" or rows.shape != (queries,):
        raise ValueError(
            f"`exclude` must hold one integer for each of the {queries} queries. "
            f"Received: dtype={rows.dtype}, shape={rows.shape}."
        )
    if rows.size and (int(rows.min()) < -1 or int(rows.max()) >= gallery):
        raise ValueError(
            f"`exclude` must be -1 or a gallery row below {gallery}. "
            f"Received: values from {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.int64)


class _Prepared(NamedTuple):
    """Rows whose inner products rank the gallery, and their lengths."""

    rows: NDArray[Any]
    norms: NDArray[np.float64]


class PreparedGallery:
    """A gallery made ready once for many calls; see `nearest_neighbors`."""

    def __init__(self, gallery: ArrayLike, metric: Metric) -> None:
        if metric not in get_args(Metric):
            raise ValueError(
                f"`metric` must be one of {get_args(Metric)}. "
                f"Received: metric={metric!r}."
            )
        self.metric = metric
        self.gallery = as_embeddings("gallery", gallery, unit=metric == "cosine")
        self._norms = row_norms(self.gallery)
        self._center = np.zeros(self.gallery.shape[1])
        if metric == "squared_euclidean" and len(self.gallery):
            self._center = self.gallery.mean(axis=0, dtype=np.float64)
        self._columns = self._prepare(self.gallery, np.float32)

    def nearest(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Answer like `nearest_neighbors`, whose arguments these are."""
        queries = as_embeddings("queries", queries, unit=self.metric == "cosine")
        if queries.shape[1] != self.gallery.shape[1]:
            raise ValueError(
                "`queries` must have the dimension of the gallery, "
                f"{self.gallery.shape[1]}. Received: {queries.shape[1]}."
            )
        banned = _check_exclude(exclude, len(queries), len(self.gallery))
        check_k(k, len(self.gallery) - bool((banned >= 0).any()))

        indices = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)
        step = max(1, _BLOCK_ELEMENTS // len(self.gallery))
        for start in range(0, len(queries), step):
            block = slice(start, start + step)
            indices[block], scores[block] = self._block(
                queries[block], k, banned[block]
            )
        if not np.isfinite(scores).all():
            raise ValueError(
                f"A `{self.metric}` score is too large for float32: scale the "
                "embeddings down."
            )
        return indices, scores

    def _block(
        self, queries: NDArray[np.float32], k: int, banned: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        near = self._candidates(queries, k, banned)
        rows, columns = np.nonzero(near)
        scores = self._scores(queries, rows, columns)
        badness = scores if self.metric == "squared_euclidean" else -scores
        # nonzero() lists columns in rising order and lexsort() is stable: ties stay
        # in the order of the index.
        order = np.lexsort((badness, rows))
        counts = np.count_nonzero(near, axis=1)
        first = np.cumsum(counts) - counts
        best = order[first[:, None] + np.arange(k)]
        return columns[best], scores[best]

    def _candidates(
        self, queries: NDArray[np.float32], k: int, banned: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Mark all columns that can be among the best k, whatever the rounding."""
        # Above this, scoring the candidates would cost more than a float64 product.
        few = len(queries) * max(4 * k, len(self.gallery) // 64)
        near, _ = self._within_rounding(queries, self._columns, k, banned)
        if np.count_nonzero(near) > few:  # embeddings that have nearly collapsed
            columns = self._prepare(self.gallery, np.float64)
            near, product = self._within_rounding(queries, columns, k, banned)
            if np.count_nonzero(near) > few and self.metric != "squared_euclidean":
                near = _best_after_rounding(product, k)
        return near

    def _within_rounding(
        self,
        queries: NDArray[np.float32],
        right: _Prepared,
        k: int,
        banned: NDArray[np.int64],
    ) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return who may be among the best k, and the scores that say so."""
        dtype = right.rows.dtype.type
        left = self._prepare(queries, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            product = left.rows @ right.rows.T
            scale = left.norms * right.norms.max()
            if self.metric == "squared_euclidean":
                product *= 2
                product -= (right.norms**2).astype(dtype)
                scale = (left.norms + right.norms.max()) ** 2
        info, final = np.finfo(dtype), np.finfo(np.float32)
        if not (scale < info.max / 8).all():  # overflow: this product knows nothing
            product[:] = 0
        # A sum of D products is off by at most about D roundings of |q||g|; 8 more
        # pay for preparing and for adding the norms. Final scores are rounded to
        # float32, and those that are then equal compete by their index.
        roundings = 8 + self.gallery.shape[1]
        slack = 2 * roundings * (info.eps / 2 * scale + float(info.tiny))
        slack += float(final.eps) * scale + float(final.tiny)
        excluded = np.flatnonzero(banned >= 0)
        product[excluded, banned[excluded]] = -np.inf
        position = len(self.gallery) - k
        kth = np.partition(product, position, axis=1)[:, position]
        with np.errstate(over="ignore"):
            lowest = np.nextafter((kth - slack).astype(dtype), dtype(-np.inf))
        near: NDArray[np.bool_] = product >= lowest[:, None]
        near[excluded, banned[excluded]] = False
        return near, product

    def _prepare(self, array: NDArray[np.float32], dtype: Any) -> _Prepared:
        """Bring rows into the form whose inner products rank the gallery."""
        rows = np.empty(array.shape, dtype)
        if self.metric == "cosine":
            norms = row_norms(array)[:, None]
            np.divide(array, norms, out=rows, casting="same_kind")
        elif self.metric == "squared_euclidean":
            # Distances do not change when all are moved, and stay sharp for
            # embeddings that lie close together and far from the origin.
            with np.errstate(over="ignore"):  # found out by the lengths
                np.subtract(array, self._center, out=rows, casting="same_kind")
        else:
            rows = array.astype(dtype, copy=False)
        return _Prepared(rows, row_norms(rows))

    def _scores(
        self,
        queries: NDArray[np.float32],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score pairs in float64, each on its own, and round to float32."""
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
            scores /= row_norms(queries)[rows] * self._norms[columns]
        with np.errstate(over="ignore"):  # reported at the end
            return scores.astype(np.float32)


def _best_after_rounding(product: NDArray[np.float64], k: int) -> NDArray[np.bool_]:
    """Mark the best k of each row and no more than k that tie with the last.

    For a gallery of which a large part scores alike in float32. Scoring all of it
    pair by pair would take hours where the float64 product takes minutes; it is
    off by 1e-16 or so, which shows only where float32 would round the other way.
    """
    with np.errstate(over="ignore"):
        rounded = product.astype(np.float32)
    position = rounded.shape[1] - k
    kth = np.partition(rounded, position, axis=1)[:, position, None]
    ties = rounded == kth
    ties &= np.cumsum(ties, axis=1, dtype=np.int32) <= k
    return ties | (rounded > kth)
