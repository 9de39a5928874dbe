"""How well a search ranks where labels have a distance and no classes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfdml.exact_scores import Metric
from tfdml.neighbors import ExactSearcher
from tfdml.query_results import QueryResults
from tfdml.rows import unit_or_zero

__all__ = ["label_distance_metrics", "label_query_metrics"]

_BLOCK_ELEMENTS = 2**22


def label_distance_metrics(
    embeddings: np.ndarray,
    labels: np.ndarray,
    ks: Sequence[int] = (1, 10),
    *,
    label_distance: Callable[[np.ndarray, np.ndarray], Any] | None = None,
    groups: np.ndarray | None = None,
    metric: Metric = "cosine",
) -> dict[str, float]:
    """Search every item among the others and compare the labels of what is found.

    With d the label distance from the query to the item of rank i:

    - `label_distance_at_k`: mean over i <= k of d; lower is better.
    - `ndcg_at_k`: sum_{i<=k} 1 / ((1 + d) log2(i + 1)), over the same sum of the
      ranking by d itself: from 0 to 1, where 1 is as good as it can be.

    Each is the mean over queries. Ties stand in the order of the items. A zero
    embedding has the cosine similarity 0 with all others.

    Args:
        embeddings: Float array `[N, dimension]`.
        labels: Array `[N, ...]`.
        ks: The k of the metrics, each at least 1 and at most the number of items that
            every query is compared with.
        label_distance: Maps labels `[A, ...]` and labels `[N, ...]` to distances
            `[A, N]`, at least 0, as the functions of `tfdml.label_distances` do.
            `None` is the Euclidean distance of the labels as vectors.
        groups: Integers or strings `[N]`: items of the query's own group are left out,
            such as the neighbouring frames of a clip. `None` leaves out the query.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.

    Returns:
        The metrics.

    Raises:
        ValueError: The shapes do not fit, `ks` is out of range, or a number is not
            finite.

    Example:
        >>> labels = np.array([[0.0], [1.0], [3.0]])
        >>> embeddings = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> label_distance_metrics(embeddings, labels, [1])["label_distance_at_1"]
        1.3333333333333333

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, section 5: the mean label distance, and nDCG with the relevance
        -log2(1 + d).
    """
    return label_query_metrics(
        embeddings,
        labels,
        ks,
        label_distance=label_distance,
        groups=groups,
        metric=metric,
    ).means()


def label_query_metrics(
    embeddings: np.ndarray,
    labels: np.ndarray,
    ks: Sequence[int] = (1, 10),
    *,
    label_distance: Callable[[np.ndarray, np.ndarray], Any] | None = None,
    groups: np.ndarray | None = None,
    metric: Metric = "cosine",
) -> QueryResults:
    """Measure each query as `label_distance_metrics` does, and keep what it measured.

    Args:
        embeddings: As in `label_distance_metrics`, and so are the others.
        labels: What is compared by `label_distance`.
        ks: The k of the metrics.
        label_distance: How far labels are apart.
        groups: What must not be compared; also the `classes` of the results.
        metric: How embeddings are compared.

    Returns:
        The metrics of each query; every item is one.

    Raises:
        ValueError: As `label_distance_metrics`.
    """
    embeddings, labels = np.asarray(embeddings), np.asarray(labels)
    if embeddings.ndim != 2 or labels.shape[:1] != embeddings.shape[:1]:
        raise ValueError(
            "`embeddings` must be [N, dimension] and `labels` [N, ...]. "
            f"Received: {embeddings.shape} and {labels.shape}."
        )
    for name, values in (("embeddings", embeddings), ("labels", labels)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ValueError(
                f"`{name}` must be finite. Received: {values[row]} in row {row}."
            )
    if metric == "cosine":
        embeddings, metric = unit_or_zero(embeddings), "dot_product"
    parts = list(_parts(len(labels), groups))
    allowed = min(len(g) - bool(np.isin(q[0], g)) for q, g in parts)
    if not ks or min(ks) < 1 or max(ks) > allowed:
        raise ValueError(
            f"`ks` must be from 1 to {allowed}, the items that every query is compared "
            f"with. Received: {list(ks)}."
        )
    distance = label_distance or _euclidean
    rows = np.empty((len(labels), 2 * len(ks)))
    for queries, gallery in parts:
        blocks = _measure(embeddings, labels, queries, gallery, ks, distance, metric)
        rows[queries] = np.concatenate(list(blocks))
    measured = {}
    for place, k in enumerate(ks):
        measured[f"label_distance_at_{k}"] = rows[:, 2 * place]
        measured[f"ndcg_at_{k}"] = rows[:, 2 * place + 1]
    everyone, nobody = np.arange(len(labels)), np.empty(0, np.int64)
    return QueryResults(
        queries=everyone,
        classes=everyone if groups is None else np.asarray(groups),
        values=measured,
        first_ranks=None,
        curve=None,
        without_positive=nobody,
        classes_without_positive=nobody,
    )


def _parts(
    count: int, groups: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield queries that are compared with the same items, and these."""
    everyone = np.arange(count)
    if groups is None:
        yield everyone, everyone
        return
    groups = np.asarray(groups)
    if groups.shape != (count,):
        raise ValueError(
            f"`groups` must have the shape [{count}]. Received: {groups.shape}."
        )
    for group in np.unique(groups):
        yield everyone[groups == group], everyone[groups != group]


def _measure(
    embeddings: np.ndarray,
    labels: np.ndarray,
    queries: np.ndarray,
    gallery: np.ndarray,
    ks: Sequence[int],
    distance: Callable[[np.ndarray, np.ndarray], Any],
    metric: Metric,
) -> Iterator[np.ndarray]:
    """Yield blocks `[queries, 2 * len(ks)]` of both metrics for each k."""
    searcher = ExactSearcher(embeddings[gallery], metric)
    own = np.isin(queries[0], gallery)  # then all are
    depth = max(ks)
    discounts = 1 / np.log2(np.arange(depth) + 2)
    step = max(1, _BLOCK_ELEMENTS // len(gallery))
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        exclude = np.searchsorted(gallery, block) if own else None
        found, _ = searcher.nearest(embeddings[block], depth, exclude)
        apart = np.array(distance(labels[block], labels[gallery]), dtype="float64")
        if not (apart >= 0).all():
            raise ValueError(
                "`label_distance` must not return negative numbers or NaN."
            )
        received = np.take_along_axis(apart, found, axis=1)
        if exclude is not None:
            apart[np.arange(len(block)), exclude] = np.inf
        best = np.sort(np.partition(apart, depth - 1, axis=1)[:, :depth], axis=1)
        columns = []
        for k in ks:
            gains, most = (
                (discounts[:k] / (1 + values[:, :k])).sum(axis=1)
                for values in (received, best)
            )
            columns += [received[:, :k].mean(axis=1), gains / most]
        yield np.stack(columns, axis=1)


def _euclidean(labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    left, right = (
        values.reshape(len(values), -1).astype("float64") for values in (labels, others)
    )
    squared = (left**2).sum(axis=1)[:, np.newaxis] + (right**2).sum(axis=1)
    return np.sqrt(np.maximum(squared - 2 * left @ right.T, 0))
