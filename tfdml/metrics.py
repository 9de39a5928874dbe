"""Retrieval metrics, exact, and what `fit` can show of a loss."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfdml.losses.base import checked_batch
from tfdml.losses.ranking import TopKPrecisionLoss
from tfdml.neighbors import Metric, PreparedGallery, unit_or_zero
from tfdml.pairs import Tensor, cosine_similarities, label_masks

__all__ = ["MisplacedPairs", "retrieval_metrics"]

_RANKS_AT_ONCE = 2**22  # a class of thousands has as many ranks for each query


def retrieval_metrics(
    embeddings: np.ndarray,
    labels: np.ndarray,
    ks: Sequence[int] = (1, 5),
    *,
    metric: Metric = "cosine",
    is_query: np.ndarray | None = None,
    is_gallery: np.ndarray | None = None,
) -> dict[str, float]:
    """Search every item among all others and say how good the rankings are.

    With `is_query` and `is_gallery`, as In-Shop has them, queries alone are searched
    with, and the gallery alone is searched; an item may be both.

    The query itself is left out by its position. Ties stand in the order of the
    gallery. Queries without a positive are left out of every mean and counted. A zero
    embedding has the cosine similarity 0 with all others. With R the number of
    positives of a query and rel(i) = 1 if rank i is a positive:

    - `precision_at_k`: sum_{i<=k} rel(i) / k, also where R < k.
    - `recall_at_k`: 1 if there is a positive in the first k, else 0 (the Recall@k of
      the metric learning papers, not the share of positives found).
    - `map_at_r`: (1/R) sum_{i<=R} rel(i) * (precision at i).

    Each is the mean over queries.

    Args:
        embeddings: Float array `[N, dimension]`.
        labels: Integer class of each item, `[N]`.
        ks: The k of Precision@k and Recall@k, each at least 1 and less than N.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.

    Returns:
        The metrics, each 0 to 1, with `queries` and `queries_without_positive`.

    Raises:
        ValueError: The shapes do not fit, `ks` is out of range, an embedding is not
            finite, or no query has a positive.

    Reference:
        Musgrave, Belongie and Lim, A Metric Learning Reality Check, ECCV 2020, for
        MAP@R; Lu et al., ICCV 2019, Eq. 2, for Precision@k.
    """
    embeddings, labels = np.asarray(embeddings), np.asarray(labels)
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            "`embeddings` must be [N, dimension] and `labels` [N]. "
            f"Received: {embeddings.shape} and {labels.shape}."
        )
    broken = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if broken.size:
        raise ValueError(
            "`embeddings` must be finite; training that makes others has diverged, and "
            f"needs a smaller learning rate. Received: {embeddings[broken[0]]} in row "
            f"{broken[0]}."
        )
    count = len(labels)
    is_query = _checked_role("is_query", is_query, count)
    is_gallery = _checked_role("is_gallery", is_gallery, count)
    searched = np.flatnonzero(is_gallery)
    names, class_of = np.unique(labels, return_inverse=True)
    sizes = np.bincount(class_of[searched], minlength=len(names))
    positives = np.where(is_query, sizes[class_of] - is_gallery, 0)
    if positives.max(initial=0) == 0:
        raise ValueError(
            "`labels` must hold some label twice: no query has a positive."
        )
    allowed = len(searched) - bool((is_gallery & (positives > 0)).any())
    if not ks or min(ks) < 1 or max(ks) > allowed:
        raise ValueError(
            f"`ks` must be from 1 to {allowed}, the number of items in the gallery "
            f"less the query. Received: {list(ks)}."
        )
    if metric == "cosine":
        embeddings, metric = unit_or_zero(embeddings), "dot_product"
    gallery = PreparedGallery(embeddings[searched], metric)
    place = np.full(count, -1)
    place[searched] = np.arange(len(searched))
    searched_classes = class_of[searched]
    depth = max(*ks, int(positives.max()))
    ranks = np.arange(1, depth + 1)
    queries = np.flatnonzero(positives)
    hits = np.empty((len(ks), len(queries)), dtype="int64")
    average_precision = np.empty(len(queries))
    step = max(1, _RANKS_AT_ONCE // depth)
    inside = place[queries] >= 0
    # A query of the gallery leaves itself out, so that its ranking is shorter by one.
    for group in (np.flatnonzero(inside), np.flatnonzero(~inside)):
        for start in range(0, len(group), step):
            block = group[start : start + step]
            rows = queries[block]
            reach = min(depth, len(searched) - bool(inside[block[0]]))
            ranked, _ = gallery.nearest(embeddings[rows], reach, exclude=place[rows])
            relevant = searched_classes[ranked] == class_of[rows, np.newaxis]
            hits[:, block] = [relevant[:, :k].sum(axis=1) for k in ks]
            precision = np.cumsum(relevant, axis=1) / ranks[:reach]
            counted = relevant & (ranks[:reach] <= positives[rows, np.newaxis])
            found = (precision * counted).sum(axis=1)
            average_precision[block] = found / positives[rows]
    results: dict[str, float] = {}
    for k, found in zip(ks, hits, strict=True):
        results[f"precision_at_{k}"] = float(np.mean(found / k))
        results[f"recall_at_{k}"] = float(np.mean(found > 0))
    results["map_at_r"] = float(np.mean(average_precision))
    results["queries"] = len(queries)
    results["queries_without_positive"] = int(is_query.sum()) - len(queries)
    return results


def _checked_role(name: str, role: np.ndarray | None, count: int) -> np.ndarray:
    if role is None:
        return np.ones(count, dtype=bool)
    role = np.asarray(role)
    if role.dtype != bool or role.shape != (count,):
        raise ValueError(
            f"`{name}` must be a bool array of shape [{count}]. "
            f"Received: dtype={role.dtype}, shape={role.shape}."
        )
    return role


@keras.saving.register_keras_serializable(package="tfdml")
class MisplacedPairs(keras.metrics.Mean):
    """Mean number of misplaced pairs of an anchor, |P| = |N| of the top-k loss.

    It says how many pairs still move the embedding; the top-k paper plots it.

    Args:
        k: As in `TopKPrecisionLoss`.
        margin: As in `TopKPrecisionLoss`.
        name: Name of the metric.
        dtype: Type of the computation.

    Example:
        `model.compile(loss=TopKPrecisionLoss(k=5), metrics=[MisplacedPairs(k=5)])`
    """

    def __init__(
        self,
        k: int = 5,
        margin: float = 0.1,
        *,
        name: str = "misplaced_pairs",
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._loss = TopKPrecisionLoss(k, margin)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Add the anchors of a batch: labels `[B]` or `[B, 1]`, embeddings `[B, D]`."""
        labels, embeddings = checked_batch(y_true, y_pred, self._loss.dtype)
        scores = cosine_similarities(embeddings, embeddings)
        counts = self._loss.misplaced_pairs(scores, *label_masks(labels))
        super().update_state(counts, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        loss = self._loss
        return {
            "name": self.name,
            "dtype": self.dtype,
            "k": loss.k,
            "margin": loss.margin,
        }
