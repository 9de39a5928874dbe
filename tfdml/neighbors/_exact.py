"""Find exact nearest neighbors by comparing every query with every gallery row."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._embeddings import as_embeddings
from tfdml._parallel import in_threads
from tfdml.neighbors._checks import check_exclude, check_k, checked_queries
from tfdml.neighbors._scores import (
    USUAL_LIMITS,
    Metric,
    PreparedGallery,
    SearchLimits,
    leave_out,
)


def nearest_neighbors(
    queries: ArrayLike,
    gallery: ArrayLike,
    k: int,
    *,
    metric: Metric = "cosine",
    exclude: ArrayLike | None = None,
    zero_rows: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the `k` nearest gallery rows of every query, by comparing with all.

    With a query `q` and a gallery row `g`:

    - `"cosine"`: `sum(q * g) / (|q| |g|)`, the highest first
    - `"dot_product"`: `sum(q * g)`, the highest first
    - `"squared_euclidean"`: `sum((q - g)^2)`, the lowest first

    Inputs are read as float32. Each score is computed in float64 and rounded to
    float32; rows whose rounded scores are equal come in the order of their index.
    The answer to a query depends neither on the other queries nor on the position of
    a row in the gallery.

    Memory, beside the inputs: a copy of the gallery in float32, one in float64 once
    many scores nearly tie, and a few blocks of about 64 MiB, or of 64 rows of scores
    if that is more. All cores work, and on large galleries the GPU of the Keras backend
    where Keras has been imported and its backend has one.

    Args:
        queries: Embeddings `[Q, D]`, real and finite. `Q` may be 0.
        gallery: Embeddings `[N, D]`, real and finite.
        k: How many rows to return, from 1 to the number of rows allowed.
        metric: `"cosine"` (default), `"dot_product"` or `"squared_euclidean"`.
        exclude: Integers `[Q]` or `[Q, m]`: the gallery rows that each query must never
            return, such as the query itself; -1 for none. Default: none at all.
        zero_rows: Whether rows of zeros are allowed with `"cosine"`: their similarity
            with all others is then 0. Default: they are refused.

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
    searcher = ExactSearcher(gallery, metric, zero_rows=zero_rows)
    return searcher.nearest(queries, k, exclude)


class ExactSearcher:
    """Find nearest neighbors in a gallery made ready once for many calls.

    Args:
        gallery: As in `nearest_neighbors`. A float32 array is not copied, and must not
            be changed afterwards.
        metric: As in `nearest_neighbors`.
        zero_rows: As in `nearest_neighbors`.
        limits: How much is computed at once; the answers do not depend on it.

    Raises:
        ValueError: As `nearest_neighbors`.

    Example:
        >>> searcher = ExactSearcher([[1.0, 0.0], [0.0, 1.0]], "cosine")
        >>> searcher.nearest([[3.0, 1.0]], 1)[0].tolist()
        [[0]]
    """

    def __init__(
        self,
        gallery: ArrayLike,
        metric: Metric,
        *,
        zero_rows: bool = False,
        limits: SearchLimits = USUAL_LIMITS,
    ) -> None:
        self._unit = metric == "cosine" and not zero_rows
        rows = as_embeddings("gallery", gallery, unit=self._unit)
        self._prepared = PreparedGallery(rows, metric, limits)

    @property
    def gallery(self) -> NDArray[np.float32]:
        """The gallery, `[N, D]`."""
        return self._prepared.gallery

    def nearest(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Answer like `nearest_neighbors`, whose arguments these are."""
        gallery = self._prepared
        rows = checked_queries(queries, self.gallery.shape[1], unit=self._unit)
        left_out = check_exclude(exclude, len(rows), len(gallery))
        # A row that is named twice is left out once.
        ordered = np.sort(left_out, axis=1)
        is_new = np.diff(ordered, axis=1, prepend=-2) > 0
        most = int((is_new & (ordered >= 0)).sum(axis=1).max(initial=0))
        check_k(k, len(gallery) - most)
        return nearest_in(gallery, rows, k, left_out)


def nearest_in(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    k: int,
    exclude: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Answer like `nearest_neighbors`, without checks.

    Args:
        gallery: The gallery.
        queries: Checked embeddings `[Q, D]`.
        k: From 1 to the number of rows that every query may return.
        exclude: The rows that each query leaves out, `[Q, m]`, -1 for none.
    """
    indices = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.float32)
    step = gallery.queries_at_once()
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        indices[block], scores[block] = _block(
            gallery, queries[block], k, exclude[block]
        )
    return indices, scores


def _block(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    k: int,
    exclude: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    # Above this, scoring the candidates would cost more than a float64 product.
    few = len(queries) * max(4 * k, len(gallery) // 64)
    sign = -1 if gallery.metric == "squared_euclidean" else 1
    for find in (_on_gpu, _by_product, partial(_by_product, sharp=True)):
        found = find(gallery, queries, k, exclude)
        if found is None:
            continue
        rows, columns = found
        if len(rows) <= few:
            scores = gallery.scores(queries, rows, columns)
            break
    else:  # embeddings that have collapsed
        everything = sign * gallery.all_scores(queries)
        leave_out(everything, exclude)
        near = _best(everything, k)
        rows, columns = np.nonzero(near)
        scores = sign * everything[near]
    # nonzero() lists columns in rising order and lexsort() is stable: ties stay in
    # the order of the index.
    order = np.lexsort((-sign * scores, rows))
    counts = np.bincount(rows, minlength=len(queries))
    first = np.cumsum(counts) - counts
    best = order[first[:, None] + np.arange(k)]
    return columns[best], scores[best]


def _on_gpu(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    k: int,
    exclude: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Answer as `_by_product`; None where there is no GPU, or its best are too few."""
    spare = gallery.limits.gpu_spare
    if exclude.shape[1] > spare:  # which would make the mask below large
        return None
    count = min(len(gallery), k + exclude.shape[1] + spare)
    found = gallery.best(queries, count)
    if found is None:
        return None
    numbers, columns, slack = found
    allowed = (columns[:, :, None] != exclude[:, None, :]).all(axis=2)
    kept = np.where(allowed, numbers, -np.inf)
    lowest = np.partition(kept, count - k, axis=1)[:, count - k] - slack
    if count < len(gallery) and not (numbers[:, -1] < lowest).all():
        return None
    rows, places = np.nonzero(kept >= lowest[:, None])
    near = columns[rows, places]
    order = np.lexsort((near, rows))
    return rows[order], near[order]


def _by_product(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    k: int,
    exclude: NDArray[np.int64],
    *,
    sharp: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs that can be among the best k, whatever the rounding.

    Returns:
        Queries and gallery rows, in the order of both.
    """
    limits = gallery.limits
    product, slack = gallery.products(queries, sharp=sharp)
    leave_out(product, exclude)

    def near(part: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers = product[part]
        with np.errstate(over="ignore"):
            kth = _at_most_the_kth(numbers, k, limits.least_maxima)
            lowest = (kth - slack[part]).astype(product.dtype)
            lowest = np.nextafter(lowest, product.dtype.type(-np.inf))
        rows, columns = np.nonzero(numbers >= lowest[:, None])
        return rows + part.start, columns

    few = max(1, limits.thread_scores // len(gallery))
    found = in_threads(near, len(product), least=few)
    rows, columns = (np.concatenate(side) for side in zip(*found, strict=True))
    allowed = product[rows, columns] > -np.inf  # an overflowing slack lets all in
    return rows[allowed], columns[allowed]


def _at_most_the_kth(numbers: NDArray[Any], k: int, least: int) -> NDArray[Any]:
    """Return for each row a number that at least k of it reach, and few more.

    Of a long row it is the k-th largest of the maxima of its parts, which takes one
    pass where the k-th largest itself takes many.
    """
    count, size = numbers.shape
    parts = max(least, 8 * k)
    if size >= 4 * parts:
        whole = numbers[:, : size // parts * parts]
        numbers = whole.reshape(count, -1, parts).max(axis=1)
    position = numbers.shape[1] - k
    return np.partition(numbers, position, axis=1)[:, position]


def _best(scores: NDArray[np.float32], k: int) -> NDArray[np.bool_]:
    """Mark the best k of each row and no more than k that tie with the last."""
    position = scores.shape[1] - k
    kth = np.partition(scores, position, axis=1)[:, position, None]
    ties = scores == kth
    ties &= np.cumsum(ties, axis=1, dtype=np.int32) <= k
    return ties | (scores > kth)
