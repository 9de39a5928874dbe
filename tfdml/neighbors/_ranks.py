"""Find the ranks of positives in a search of the whole gallery."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml._core.embeddings import as_embeddings
from tfdml._core.exact_search import (
    USUAL_LIMITS,
    Metric,
    PreparedGallery,
    SearchLimits,
    Ties,
    check_ties,
    ranks_in,
)
from tfdml.messages import shown
from tfdml.neighbors._checks import check_exclude, checked_queries


def positive_ranks(
    queries: ArrayLike,
    gallery: ArrayLike,
    positives: Sequence[ArrayLike],
    *,
    metric: Metric = "cosine",
    exclude: ArrayLike | None = None,
    ties: Ties = "index",
    limits: SearchLimits = USUAL_LIMITS,
) -> list[NDArray[np.int64]]:
    """Find the rank of each positive of each query in a search of the whole gallery.

    The rank is one more than the number of gallery rows before it, those excluded not
    counted; scores are those of `tfdml.neighbors.nearest_neighbors`, so that rank 1 is
    its first answer. Rows of equal score come

    - `"index"`: in the order of the gallery,
    - `"pessimistic"`: positives after all others, among themselves in that order,
    - `"optimistic"`: positives before all others.

    All metrics of a ranking follow from these ranks. They are counted: O(Q N R) quick
    comparisons for R positives of a query, and no sorting while R is small. Memory is
    that of `nearest_neighbors`, and so is the use of a GPU, which leaves to
    the CPU queries with more than 1,024 positives or rows to leave out.

    Args:
        queries: Embeddings `[Q, D]`, real and finite.
        gallery: Embeddings `[N, D]`, real and finite.
        positives: For each query the gallery rows whose rank is wanted, integers
            `[R]`, all different and none excluded; R may be 0.
        metric: `"cosine"` (default), `"dot_product"` or `"squared_euclidean"`.
        exclude: Integers `[Q]` or `[Q, m]`: the gallery rows that a query is not
            compared with, such as itself; -1 for none.
        ties: Which of rows of equal score comes first.
        limits: How much is computed at once; the ranks do not depend on it.

    Returns:
        For each query the ranks of its positives, from 1, in rising order, int64 `[R]`.

    Raises:
        ValueError: As `nearest_neighbors`; a positive is excluded, named twice or not
            a gallery row; `ties` is unknown.

    Example:
        >>> import numpy as np
        >>> from tfdml.neighbors import positive_ranks
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.5]])
        >>> positive_ranks([[1.0, 0.1]], gallery, [[1, 2]])
        [array([2, 3])]
    """
    unit = metric == "cosine"
    rows = as_embeddings("gallery", gallery, unit=unit)
    prepared = PreparedGallery(rows, metric, limits)
    checked = checked_queries(queries, rows.shape[1], unit=unit)
    if len(positives) != len(checked):
        raise ValueError(
            f"`positives` must have one entry for each of the {len(checked)} queries. "
            f"Received: {len(positives)}."
        )
    left_out = check_exclude(exclude, len(checked), len(prepared))
    wanted = [
        _checked_positives(rows, number, left_out[number], len(prepared))
        for number, rows in enumerate(positives)
    ]
    check_ties(ties)
    ranks = ranks_in(prepared, checked, wanted, left_out, ties=ties)
    ends = np.cumsum([0, *map(len, wanted)])
    return [ranks[start:end] for start, end in pairwise(ends)]


def _checked_positives(
    rows: ArrayLike, query: int, exclude: NDArray[np.int64], gallery: int
) -> NDArray[np.int64]:
    array = as_array("positives", rows)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            "`positives` must hold integers [R] for each query. Received: "
            f"dtype={array.dtype}, shape={array.shape} for query {query}."
        )
    ordered = np.unique(array)
    if len(ordered) < len(array) or ordered[0] < 0 or ordered[-1] >= gallery:
        raise ValueError(
            f"`positives` must be different gallery rows, from 0 to {gallery - 1}. "
            f"Received: {shown(array.tolist())} for query {query}."
        )
    if np.isin(ordered, exclude).any():
        raise ValueError(
            "`positives` must not hold a row that `exclude` leaves out. Received: "
            f"{shown(array.tolist())} for query {query}."
        )
    return ordered.astype(np.int64)
