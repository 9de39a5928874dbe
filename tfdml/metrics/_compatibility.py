"""Measure whether a new model may search the gallery of an old one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.embeddings import DIVERGED, as_embeddings
from tfdml._core.exact_search import Metric
from tfdml._core.labels import as_labels, as_role, numbered
from tfdml.metrics._intervals import Difference, paired_difference, paired_share
from tfdml.metrics._results import QueryResults
from tfdml.metrics._retrieval import query_metrics
from tfdml.metrics._task import RetrievalTask


class GainShare(NamedTuple):
    """Which share of a gain is had already, with its interval."""

    share: float
    """1: all of it; below 0: a loss."""
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Compatibility:
    """Three measurements of the same queries: by which model they and the gallery are.

    Args:
        old_on_old: What the service finds now: old queries in the old gallery.
        new_on_old: What it finds with new queries, before any item is embedded again.
        new_on_new: What it finds once all items are embedded again.
    """

    old_on_old: QueryResults
    new_on_old: QueryResults
    new_on_new: QueryResults

    def change(self, metric: str = "precision_at_1") -> Difference:
        """Return by how much new queries in the old gallery are better than old ones.

        Shen et al. call a new model compatible if this is above 0. Here it has an
        interval: the model is compatible if `is_significant` too, and not if it is
        significantly below 0.

        Args:
            metric: A metric of the results.

        Returns:
            The difference of the means, as from `paired_difference`.

        Raises:
            ValueError: There is no such metric, or all queries are of one class.
        """
        old, new, _ = self._values(metric)
        return paired_difference(old, new, self.old_on_old.classes)

    def gain_share(self, metric: str = "precision_at_1") -> GainShare | None:
        """Return which share of the gain of embedding all items again is had without.

            (new on old - old on old) / (new on new - old on old)

        Args:
            metric: A metric of the results.

        Returns:
            The share, and its interval by resampling whole classes; None if embedding
            all items again has no significant gain: a share of it would mean nothing.

        Raises:
            ValueError: As `change`.
        """
        old, new, whole = self._values(metric)
        found = paired_share(new - old, whole - old, self.old_on_old.classes)
        return None if found is None else GainShare(*found)

    def _values(self, metric: str) -> list[NDArray[np.float64]]:
        every = self.old_on_old.values
        if metric not in every:
            raise ValueError(
                f"`metric` must be one of {', '.join(every)}. Received: {metric!s:.80}."
            )
        results = (self.old_on_old, self.new_on_old, self.new_on_new)
        return [found.values[metric] for found in results]


def compatibility(
    old: ArrayLike,
    new: ArrayLike,
    labels: ArrayLike,
    ks: Sequence[int] = (1, 5),
    *,
    metric: Metric = "cosine",
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Compatibility:
    """Measure new queries on an old gallery beside old on old and new on new.

    The embeddings are those of the same images by two models. A query is left out of
    its own results, whichever model has embedded it.

    Args:
        old: Embeddings by the old model, float array `[N, dimension]`.
        new: Embeddings by the new model, `[N, dimension]`.
        labels: Class of each image, integers or strings `[N]`; of classes that neither
            model was trained on.
        ks: The k of Precision@k and Recall@k.
        metric: How embeddings are compared, those of both models alike.
        is_query: As in `query_metrics`, and so are the others.
        is_gallery: Which images are searched.
        groups: What must not be compared.

    Returns:
        The three results.

    Raises:
        ValueError: Old and new embeddings have other shapes, so that they cannot be
            compared; or as `query_metrics`.

    Example:
        >>> old = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.6, 0.8]])
        >>> new = np.array([[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])
        >>> found = compatibility(old, new, ["a", "a", "b", "b"], [1])
        >>> found.change().difference
        0.0

    Reference:
        Shen, Xiong, Xia and Soatto, Towards Backward-Compatible Representation
        Learning, CVPR 2020.
    """
    old, new = two_models(old, new)
    about: dict[str, Any] = {
        "is_query": is_query,
        "is_gallery": is_gallery,
        "groups": groups,
    }
    alone = [
        query_metrics(rows, labels, ks, metric=metric, **about) for rows in (old, new)
    ]
    task = task_between(new, old, labels, **about)
    return Compatibility(alone[0], query_metrics(task, ks=ks, metric=metric), alone[1])


def two_models(
    old: ArrayLike, new: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Check embeddings of the same images by two models.

    Raises:
        ValueError: One is no matrix of finite numbers, or their shapes differ.
    """
    before = as_embeddings("old", old, unit=False, remedy=DIVERGED)
    after = as_embeddings("new", new, unit=False, remedy=DIVERGED)
    if before.shape != after.shape:
        raise ValueError(
            "`old` and `new` must have the same shape, a row per image and equal "
            "dimensions, or they cannot be compared. "
            f"Received: {before.shape} and {after.shape}."
        )
    return before, after


def task_between(
    queries: NDArray[np.float32],
    gallery: NDArray[np.float32],
    labels: ArrayLike,
    *,
    is_query: ArrayLike | None,
    is_gallery: ArrayLike | None,
    groups: ArrayLike | None,
) -> RetrievalTask:
    """Return the task of images that search by one embedding and are found by another.

    Its first N items are the queries, the next N the gallery. Both items of an image
    are of one group, so that an image does not find itself.

    Args:
        queries: Embeddings to search with, `[N, dimension]`.
        gallery: Embeddings to find, of the same images, `[N, dimension]`.
        labels: Class of each image, `[N]`.
        is_query: As in `RetrievalTask`, and so are the others.
        is_gallery: Which images are searched.
        groups: What must not be compared.

    Raises:
        ValueError: A shape or type does not fit.
    """
    count = len(queries)
    classes = as_labels("labels", labels, count)
    own = np.arange(count)
    if groups is not None:
        own = numbered(as_labels("groups", groups, count))
    none = np.zeros(count, bool)
    return RetrievalTask(
        np.concatenate([queries, gallery]),
        np.tile(classes, 2),
        is_query=np.concatenate([as_role("is_query", is_query, count), none]),
        is_gallery=np.concatenate([none, as_role("is_gallery", is_gallery, count)]),
        groups=np.tile(own, 2),
    )
