"""Order the items of an old gallery for backfilling, and measure it half done."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import in_range
from tfdml._core.arrays import as_array
from tfdml._core.embeddings import DIVERGED, as_embeddings, row_norms
from tfdml._core.exact_search import Metric
from tfdml._core.labels import as_labels, as_role
from tfdml.batch_designs import class_means
from tfdml.messages import shown
from tfdml.metrics._compatibility import task_between, two_models
from tfdml.metrics._results import QueryResults
from tfdml.metrics._retrieval import query_metrics

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def backfill_order(
    old: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    traffic: ArrayLike | None = None,
    metric: Metric = "cosine",
) -> NDArray[np.int64]:
    """Return in which order to embed the items of an old gallery by a new model.

    By class: the items whose old embedding is farthest from the mean of its class come
    first, as the old model places them worst. By traffic: the items that are found most
    often come first. With both, traffic decides and the class orders items of equal
    traffic. Items that are equal in all this stay in their order.

    Args:
        old: Embeddings by the old model, float array `[N, dimension]`, with `labels`.
        labels: Class of each item, integers or strings `[N]`.
        traffic: How often each item was found, or is expected to be, real numbers of at
            least 0, `[N]`.
        metric: How embeddings are compared: `"cosine"` or `"squared_euclidean"`;
            `"dot_product"` as `"cosine"`.

    Returns:
        The items in their order, int64 `[N]`: `order[0]` is the first to embed again.

    Raises:
        ValueError: Neither `labels` nor `traffic` is given, only one of `old` and
            `labels` is, or a shape or type does not fit.

    Example:
        >>> old = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.0, 1.0]])
        >>> backfill_order(old, ["a", "a", "a", "b"]).tolist()
        [2, 0, 1, 3]
        >>> backfill_order(traffic=[1, 5, 0, 5]).tolist()
        [1, 3, 0, 2]
    """
    if (old is None) != (labels is None) or (old is None and traffic is None):
        raise ValueError(
            "`labels` must be given together with `old`, or `traffic` alone. Received: "
            f"old={_given(old)}, labels={_given(labels)}, traffic={_given(traffic)}."
        )
    keys = []
    if old is not None and labels is not None:
        rows = as_embeddings("old", old, unit=False, remedy=DIVERGED)
        keys.append(-_distances(rows, as_labels("labels", labels, len(rows)), metric))
    if traffic is not None:
        keys.append(-_checked_traffic(traffic, len(keys[0]) if keys else None))
    return np.lexsort(keys).astype(np.int64)  # the last key counts first


def backfill_curve(
    old: ArrayLike,
    new: ArrayLike,
    labels: ArrayLike,
    order: ArrayLike,
    ks: Sequence[int] = (1, 5),
    *,
    shares: Sequence[float] = SHARES,
    metric: Metric = "cosine",
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> list[QueryResults]:
    """Measure new queries on a gallery of which a share has been embedded again.

    Args:
        old: Embeddings by the old model, float array `[N, dimension]`.
        new: Embeddings of the same images by the new model, `[N, dimension]`.
        labels: Class of each image, integers or strings `[N]`.
        order: In which order the images are embedded again: each of 0 to N - 1 once,
            `[N]`, such as `backfill_order` returns; images outside of the gallery are
            skipped.
        ks: The k of Precision@k and Recall@k.
        shares: Shares of the gallery, each from 0 to 1. 0 is new on old, 1 is new on
            new, as in `compatibility`.
        metric: How embeddings are compared.
        is_query: As in `query_metrics`, and so are the others.
        is_gallery: Which images are searched.
        groups: What must not be compared.

    Returns:
        The results at each share, in the order of `shares`.

    Raises:
        ValueError: An argument is out of range; or as `compatibility`.

    Example:
        >>> old, new = np.eye(4), np.eye(4)[[0, 0, 1, 1]]
        >>> found = backfill_curve(
        ...     old, new, [0, 0, 1, 1], [0, 1, 2, 3], [1], shares=[0.0, 1.0]
        ... )
        >>> [float(results.means()["precision_at_1"]) for results in found]
        [0.5, 1.0]
    """
    before, after = two_models(old, new)
    count = len(before)
    places = as_array("order", order)
    if places.dtype.kind not in "iu" or not np.array_equal(
        np.sort(places, axis=None), np.arange(count)
    ):
        raise ValueError(
            f"`order` must hold each whole number from 0 to {count - 1} once. "
            f"Received: {shown(places)}."
        )
    checked = [in_range("shares", share, 0, 1) for share in shares]
    searched = as_role("is_gallery", is_gallery, count)
    ordered = places[searched[places]]
    about = {"is_query": is_query, "is_gallery": is_gallery, "groups": groups}
    found = []
    for share in checked:
        gallery = before.copy()
        done = ordered[: round(share * len(ordered))]
        gallery[done] = after[done]
        task = task_between(after, gallery, labels, **about)
        found.append(query_metrics(task, ks=ks, metric=metric))
    return found


def _distances(
    rows: NDArray[np.float32], labels: NDArray[np.generic], metric: Metric
) -> NDArray[np.float64]:
    """Return how far each row is from the mean of its class, `[N]`."""
    wide = rows.astype(np.float64)
    if metric != "squared_euclidean":
        norms = row_norms(rows)[:, np.newaxis]
        wide /= np.where(norms > 0, norms, 1)
    _, class_of = np.unique(labels, return_inverse=True)
    means = class_means(wide, class_of)[class_of]
    if metric == "squared_euclidean":
        squares: NDArray[np.float64] = ((wide - means) ** 2).sum(axis=1)
        return squares
    lengths = row_norms(means)
    cosines = (wide * means).sum(axis=1) / np.where(lengths > 0, lengths, 1)
    # The only image of its class is no distance from itself, whatever its rounding.
    return np.round(1 - cosines, 12)


def _checked_traffic(traffic: ArrayLike, count: int | None) -> NDArray[np.float64]:
    counts = as_array("traffic", traffic)
    fits = counts.ndim == 1 and count in (None, len(counts))
    if not fits or counts.dtype.kind not in "iuf":
        shape = "[N]" if count is None else f"[{count}]"
        raise ValueError(
            f"`traffic` must be real numbers of the shape {shape}. "
            f"Received: shape={counts.shape}, dtype={counts.dtype}."
        )
    if not (np.isfinite(counts) & (counts >= 0)).all():
        place = int(np.argmin(np.isfinite(counts) & (counts >= 0)))
        raise ValueError(
            "`traffic` must be finite and at least 0. "
            f"Received: {counts[place]} at {place}."
        )
    return counts.astype(np.float64)


def _given(value: ArrayLike | None) -> str:
    return "None" if value is None else "given"
