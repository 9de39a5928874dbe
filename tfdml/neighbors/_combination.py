"""Combine several queries, and examples of what is not wanted, into one query."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import fraction, one_of
from tfdml._core.embeddings import as_embeddings, unit_or_zero
from tfdml._core.exact_search import Metric
from tfdml.messages import shown

_METRICS = ("cosine", "dot_product", "squared_euclidean")
_LEAST_LENGTH = 1e-6  # of a sum of rows of length 1 in float32: below is rounding


def combine_queries(
    positives: ArrayLike,
    negatives: ArrayLike | None = None,
    *,
    negative_weight: float = 0.5,
    metric: Metric = "cosine",
) -> NDArray[np.float32]:
    """Combine examples of what is wanted, and of what is not, into one query.

    An index that is searched with the result ranks its items `x` by

        mean of s(p, x) over positives p - w * mean of s(n, x) over negatives n

    where `s` is the score of the metric (for `"squared_euclidean"` minus the squared
    distance) and `w` is `negative_weight`. With the means `P` and `N` of the rows,
    which `"cosine"` first scales to length 1, the query is

        "cosine"             P - w N, scaled to length 1
        "dot_product"        P - w N
        "squared_euclidean"  (P - w N) / (1 - w), w = 0 without negatives

    Args:
        positives: Embeddings `[P, D]` of what is wanted, `P` at least 1; real and
            finite, and for `"cosine"` none of zeros.
        negatives: Embeddings `[N, D]` of what is not wanted, likewise; `N` may be 0.
            Default: none.
        negative_weight: How much negatives count, `w`, at least 0 and below 1.
        metric: How the index compares.

    Returns:
        float32 `[1, D]`, for `Index.search`. An index that keeps the first `d` numbers
        of embeddings ranks by this formula if the rows are those of
        `first_dimensions(rows, d)`.

    Raises:
        ValueError: A shape, dtype or value is not as stated above, or, with
            `"cosine"`, positives and negatives cancel each other.

    Reference:
        Rocchio, Relevance Feedback in Information Retrieval, The SMART Retrieval
        System 1971: the mean of relevant items less a share of the mean of others.

    Example:
        >>> from tfdml.neighbors import combine_queries
        >>> combine_queries([[1.0, 0.0], [0.0, 1.0]]).round(3).tolist()
        [[0.7070000171661377, 0.7070000171661377]]
        >>> combine_queries([[1.0, 0.0]], [[0.0, 2.0]]).round(3).tolist()
        [[0.8939999938011169, -0.44699999690055847]]
    """
    metric = one_of("metric", metric, _METRICS)
    weight = fraction("negative_weight", negative_weight)
    wanted = as_embeddings("positives", positives, unit=metric == "cosine")
    if not len(wanted):
        raise ValueError(
            "`positives` must have at least one row: without one there is nothing to "
            f"search for. Received: shape={wanted.shape}."
        )
    unwanted = wanted[:0]
    if negatives is not None:
        unwanted = as_embeddings("negatives", negatives, unit=metric == "cosine")
    if unwanted.shape[1] != wanted.shape[1]:
        raise ValueError(
            "`negatives` must have as many columns as `positives`, "
            f"{wanted.shape[1]}. Received: shape={unwanted.shape}."
        )
    query = _mean(wanted, metric)
    if len(unwanted):
        query -= weight * _mean(unwanted, metric)
        if metric == "squared_euclidean":
            query /= 1 - weight
    if metric == "cosine":
        if np.linalg.norm(query) < _LEAST_LENGTH:
            raise ValueError(
                "`positives` and `negatives` must not cancel each other: their "
                "combination points nowhere. Leave some out, or change "
                f"`negative_weight`. Received: {len(wanted)} positives, "
                f"{len(unwanted)} negatives, negative_weight={shown(weight)}."
            )
        return unit_or_zero(query)
    return as_embeddings("positives", query, unit=False)


def _mean(rows: NDArray[np.float32], metric: Metric) -> NDArray[np.float64]:
    """Return the mean of rows, which cosines compare at length 1, `[1, D]`."""
    scaled = unit_or_zero(rows) if metric == "cosine" else rows
    return scaled.mean(axis=0, keepdims=True, dtype=np.float64)
