"""Compute retrieval metrics where labels have a distance instead of classes."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml._core.exact_search import Metric, PreparedGallery, leave_out, nearest_in
from tfdml.messages import shown
from tfdml.metrics._comparisons import checked_ks
from tfdml.metrics._results import QueryResults
from tfdml.metrics._task import RetrievalTask

_GATHERED = 2**22  # numbers gathered at once to be compared again: 32 MiB
_CANCELLED = 1e-4  # of a product of this size at most 12 digits are exact


def label_distance_metrics(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike,
    ks: Sequence[int] = (1, 10),
    *,
    label_distance: Callable[[np.ndarray, np.ndarray], Any] | None = None,
    groups: ArrayLike | None = None,
    metric: Metric = "cosine",
) -> dict[str, float]:
    """Search every item among the others and compare the labels of what is found.

    With d the label distance from the query to the item of rank i:

    - `label_distance_at_k`: mean over i <= k of d; lower is better.
    - `ndcg_at_k`: sum_{i<=k} 1 / ((1 + d) log2(i + 1)), over the same sum of the
      ranking by d itself: from 0 to 1, where 1 is as good as it can be.

    Each is the mean over queries. Ties come in the order of the items. A zero
    embedding has the cosine similarity 0 with all others.

    Args:
        embeddings: Float array `[N, dimension]`; or a `RetrievalTask` without classes
            and roles, which holds the groups too.
        labels: Array `[N, ...]`, finite.
        ks: The k of the metrics, whole numbers from 1 to the number of items that
            every query is compared with.
        label_distance: Maps labels `[A, ...]` and labels `[N, ...]` to distances
            `[A, N]`, finite and at least 0, as the functions of `tfdml.ops`
            do. `None` is the Euclidean distance of the labels as vectors of real
            numbers, in float64: labels that nearly agree keep their distance.
        groups: Integers or strings `[N]`: items of the query's own group are left out,
            such as the neighboring frames of a clip. `None` leaves out the query.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.

    Returns:
        The metrics.

    Raises:
        ValueError: The shapes or types do not fit, `ks` is out of range, there are
            fewer than two items or groups, a number is not finite, or `label_distance`
            returns another shape, a negative number, NaN or infinity.

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
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike,
    ks: Sequence[int] = (1, 10),
    *,
    label_distance: Callable[[np.ndarray, np.ndarray], Any] | None = None,
    groups: ArrayLike | None = None,
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

    Example:
        >>> labels = np.array([[0.0], [1.0], [3.0]])
        >>> embeddings = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> results = label_query_metrics(embeddings, labels, [1])
        >>> results.values["label_distance_at_1"].tolist()
        [1.0, 1.0, 2.0]
    """
    task = _checked_task(embeddings, groups)
    count = len(task)
    labels = _finite_labels(labels, count)
    classes = np.arange(count) if task.groups is None else task.groups
    numbers = _checked_ks(ks, task)
    if label_distance is None:
        labels, label_distance = _vectors(labels)
    values = np.empty((count, 2 * len(numbers)))
    gallery = PreparedGallery(task.embeddings, metric, task.limits.search)
    depth = max(numbers)
    for block, exclude in task.blocks(task.queries, task.limits.label_distances, count):
        found, _ = nearest_in(gallery, task.embeddings[block], depth, exclude)
        apart = _distances(label_distance, labels[block], labels)
        received = np.take_along_axis(apart, found, axis=1)
        leave_out(apart, exclude, np.inf)
        best = np.sort(np.partition(apart, depth - 1, axis=1)[:, :depth], axis=1)
        values[block] = np.stack(list(_measured(received, best, numbers)), axis=1)
    names = [f"{name}_at_{k}" for k in numbers for name in ("label_distance", "ndcg")]
    nobody = np.empty(0, np.int64)
    return QueryResults(
        queries=np.arange(count),
        classes=classes,
        values=dict(zip(names, values.T.copy(), strict=True)),
        first_ranks=None,
        curve=None,
        without_positive=nobody,
        classes_without_positive=nobody,
    )


def _checked_task(
    embeddings: ArrayLike | RetrievalTask, groups: ArrayLike | None
) -> RetrievalTask:
    if not isinstance(embeddings, RetrievalTask):
        return RetrievalTask(embeddings, groups=groups)
    if groups is not None or embeddings.labels is not None or embeddings.has_roles:
        raise ValueError(
            "`embeddings` must be a task without classes and roles, and hold the "
            f"`groups` itself. Received: a task of {embeddings}, "
            f"groups={shown(groups)}."
        )
    return embeddings


def _finite_labels(labels: Any, count: int) -> NDArray[Any]:
    labels = as_array("labels", labels)
    if labels.shape[:1] != (count,):
        raise ValueError(
            "`embeddings` must be [N, dimension] and `labels` [N, ...]. "
            f"Received: {count} embeddings and labels of the shape {labels.shape}."
        )
    if labels.dtype.name == "bfloat16":
        labels = labels.astype(np.float32)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.argwhere(~np.isfinite(labels))[0][0])
        raise ValueError(
            "`labels` must be finite. Received: "
            f"{shown(labels[row].tolist())} in row {row}."
        )
    return labels


def _checked_ks(ks: Sequence[int], task: RetrievalTask) -> list[int]:
    numbers, count = checked_ks(ks), len(task)
    if count < 2:
        raise ValueError(
            f"`embeddings` must hold two items or more. Received: {count}."
        )
    allowed = int(task.compared_counts.min())
    if not allowed:
        raise ValueError(
            "`groups` must hold two groups or more: a query is compared with the "
            f"others. Received: all {count} items in one."
        )
    if max(numbers) > allowed:
        raise ValueError(
            f"`ks` must be from 1 to {allowed}, the items that every query is compared "
            f"with. Received: {shown(numbers)}."
        )
    return numbers


def _measured(
    received: NDArray[np.float64], best: NDArray[np.float64], ks: Sequence[int]
) -> Iterator[NDArray[np.float64]]:
    """Yield both metrics of each query for each k.

    Args:
        received: Label distances of what is found, `[queries, depth]`.
        best: The least label distances, rising, `[queries, depth]`.
        ks: From 1 to depth.
    """
    discounts = 1 / np.log2(np.arange(received.shape[1]) + 2)
    for k in ks:
        gains, most = (
            (discounts[:k] / (1 + values[:, :k])).sum(axis=1)
            for values in (received, best)
        )
        yield received[:, :k].mean(axis=1)
        yield gains / most


def _distances(
    function: Callable[[np.ndarray, np.ndarray], Any],
    labels: NDArray[Any],
    others: NDArray[Any],
) -> NDArray[np.float64]:
    """Return the label distances, checked, in an array of their own."""
    apart = np.array(function(labels, others), dtype="float64")
    shape = (len(labels), len(others))
    if apart.shape != shape:
        raise ValueError(
            f"`label_distance` must return the shape {shown(list(shape))} for "
            f"{shape[0]} and {shape[1]} labels. Received: {apart.shape}."
        )
    is_distance = (apart >= 0) & (apart < np.inf)
    if not is_distance.all():
        raise ValueError(
            "`label_distance` must return finite numbers of at least 0. Received: "
            f"{apart[~is_distance][0]}."
        )
    return apart


def _vectors(
    labels: NDArray[Any],
) -> tuple[NDArray[np.float64], Callable[[np.ndarray, np.ndarray], Any]]:
    """Return labels as vectors of numbers up to 1, and the distance between those."""
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            "`labels` must be real numbers where no `label_distance` is given. "
            f"Received: dtype={labels.dtype}."
        )
    flat = labels.reshape(len(labels), math.prod(labels.shape[1:]))
    if flat.dtype.kind in "iu":
        # float64 would round integers above 2^53. Modulo 2^64 the difference is exact.
        flat = flat.astype(np.uint64) - flat.min(axis=0).astype(np.uint64)
    vectors = flat.astype(np.float64)
    exponent = int(np.frexp(np.abs(vectors).max(initial=0))[1])
    vectors = np.ldexp(vectors, -exponent)  # exact, and no square overflows
    span = np.linalg.norm(vectors.max(axis=0) - vectors.min(axis=0))
    with np.errstate(over="ignore"):  # reported here
        if not np.isfinite(np.ldexp(span, exponent)):
            raise ValueError(
                "`labels` are too far apart for float64: scale them down. Received: "
                f"numbers from {flat.min()} to {flat.max()}."
            )
    center = np.median(vectors, axis=0)
    return vectors, partial(_euclidean, center=center, exponent=exponent)


def _euclidean(
    labels: NDArray[np.float64],
    others: NDArray[np.float64],
    *,
    center: NDArray[np.float64],
    exponent: int,
) -> NDArray[np.float64]:
    """Return Euclidean distances times 2^exponent.

    The product |a|^2 + |b|^2 - 2 a.b is fast, but cancels where a is close to b: these
    pairs are computed again by their difference.
    """
    left, right = labels - center, others - center
    sizes = (left**2).sum(axis=1)[:, np.newaxis] + (right**2).sum(axis=1)
    squares = sizes - 2 * left @ right.T
    rows, columns = np.nonzero(squares < _CANCELLED * sizes)
    step = max(1, _GATHERED // max(1, labels.shape[1]))
    for start in range(0, len(rows), step):
        a, b = rows[start : start + step], columns[start : start + step]
        squares[a, b] = ((labels[a] - others[b]) ** 2).sum(axis=1)
    return np.ldexp(np.sqrt(squares), exponent)
