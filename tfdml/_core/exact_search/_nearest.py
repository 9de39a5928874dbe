"""Find the nearest rows of a prepared gallery, whatever the rounding."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._core.exact_search._gpu_nearest import find_nearest_on_gpu
from tfdml._core.exact_search._scores import PreparedGallery, leave_out
from tfdml._core.parallel import in_threads


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
    left = find_nearest_on_gpu(gallery, queries, exclude, indices, scores)
    step = gallery.queries_at_once()
    for start in range(0, len(left), step):
        some = left[start : start + step]
        indices[some], scores[some] = _block(gallery, queries[some], k, exclude[some])
    return indices, scores


def _block(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    k: int,
    exclude: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    # Above this, scoring the candidates would cost more than a float64 product.
    few = len(queries) * max(4 * k, len(gallery) // 64)
    sign = gallery.sign
    for sharp in (False, True):
        rows, columns = _by_product(gallery, queries, k, exclude, sharp=sharp)
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


def _by_product(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    k: int,
    exclude: NDArray[np.int64],
    *,
    sharp: bool,
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
