"""Check the recall that an index is asked to reach."""

from dataclasses import replace
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.embeddings import as_embeddings
from tfdml.index._interface import Metric
from tfdml.index._recall import LEAST_QUERIES, RecallTarget
from tfdml.messages import shown
from tfdml.neighbors import first_dimensions

_MOST_QUERIES = 2_000


def checked_target(
    value: float | None, queries: ArrayLike | None, seed: int, metric: Metric
) -> RecallTarget | None:
    """Check what recall an index is to reach, measured with which queries.

    Args:
        value: `target_recall` of `LocalIndex.build`, as are the others.
        queries: The queries of the caller.
        seed: Seed of the drawing.
        metric: How the index compares.

    Returns:
        The target; None without one.

    Raises:
        ValueError: An argument is not as it should be.
    """
    if value is None:
        if queries is not None:
            raise ValueError(
                "`queries` must come with a `target_recall` to be measured for."
            )
        return None
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(
            "`target_recall` must be above 0 and below 1, or None. Received: "
            f"target_recall={shown(value)}. To find all neighbors, use `ExactIndex`."
        )
    seed = whole("seed", seed, least=0)
    if queries is None:
        return RecallTarget(float(value), None, seed)
    checked = as_embeddings("queries", queries, unit=metric == "cosine")
    if len(checked) < LEAST_QUERIES:
        raise ValueError(
            f"`queries` must have at least {LEAST_QUERIES} rows: fewer say little "
            f"about the recall. Received: {len(checked)}."
        )
    # A copy, and no more than are measured with.
    drawn = np.random.default_rng(seed).permutation(len(checked))[:_MOST_QUERIES]
    return RecallTarget(float(value), checked[drawn], seed)


def cut_target(
    target: RecallTarget | None,
    embeddings: ArrayLike,
    dimensions: int | None,
    metric: Metric,
) -> RecallTarget | None:
    """Cut the queries of a target as the gallery will be.

    Raises:
        ValueError: They have not the dimension of the embeddings.
    """
    if dimensions is None or target is None or target.queries is None:
        return target
    rows = as_embeddings("embeddings", embeddings, unit=False)
    check_target_dimension(target.queries, rows.shape[1])
    queries = first_dimensions(target.queries, dimensions, metric=metric)
    return replace(target, queries=queries)


def check_target_dimension(queries: NDArray[np.float32] | None, dimension: int) -> None:
    """Refuse queries of another dimension than the gallery's."""
    if queries is not None and queries.shape[1] != dimension:
        raise ValueError(
            f"`queries` must have the dimension of the gallery, {dimension}. "
            f"Received: shape={queries.shape}."
        )
