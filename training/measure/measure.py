"""Measure how good embeddings of a split are, query by query and on the whole."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import numpy as np

from tfdml.metrics import (
    QueryResults,
    RetrievalTask,
    cluster,
    clustering_metrics,
    label_query_metrics,
    query_metrics,
)
from tfdml.neighbors import Metric

from ..data.data_set import DataSet
from ..data.split import Split
from .embed import embed

_KS = (1, 5)
_LABEL_KS = (1, 10)

EmbeddingMetric = Literal["cosine", "squared_euclidean"]
"""How embeddings are compared: those of unit length, and those of any length."""


def usual_ks(data: DataSet) -> tuple[int, ...]:
    """Return the k that are measured unless others are asked for."""
    return _LABEL_KS if data.is_continuous else _KS


def measure(
    split: Split,
    embedded: Callable[[Split], np.ndarray],
    ks: Sequence[int] | None = None,
    *,
    metric: Metric = "cosine",
    most_queries: int | None = None,
) -> dict[str, float] | None:
    """Measure retrieval on a split.

    Classes: the metrics of `tfdml.metrics.retrieval_metrics`, by query and gallery
    where the data set has such roles, and among other sequences than the query's own
    where it has sequences. Continuous labels: those of
    `tfdml.metrics.label_distance_metrics`; where sequences are known, each also
    among the images of other sequences.

    Args:
        split: The images.
        embedded: Embeds them.
        ks: As in `split_results`.
        metric: How embeddings are compared.
        most_queries: Of more queries with classes, so many are drawn, always the same.

    Returns:
        The metrics; None if no query has anything to find.
    """
    if not split.can_be_measured:
        return None
    task = task_of(split, embedded(split), most_queries=most_queries)
    return means_of(split_results(split, task, ks, metric=metric))


def task_of(
    split: Split, embeddings: np.ndarray, *, most_queries: int | None = None
) -> RetrievalTask:
    """Check the embeddings of a split once for all that is measured of them.

    Args:
        split: The images.
        embeddings: Float array `[N, dimension]`.
        most_queries: As in `measure`.

    Returns:
        The embeddings with the classes, roles and sequences of the images; with
        continuous labels the embeddings alone.

    Raises:
        ValueError: The embeddings are not finite, or not one row per image.
    """
    data = split.data
    if data.is_continuous:
        return RetrievalTask(embeddings)
    is_query = None if data.roles is None else data.is_query()
    is_gallery = None if data.roles is None else data.is_gallery()
    if most_queries is not None and data.is_query().sum() > most_queries:
        # Those without a positive count too: they are reported.
        drawn = np.random.default_rng(0).permutation(np.flatnonzero(data.is_query()))
        is_query = np.isin(np.arange(len(data)), drawn[:most_queries])
    return RetrievalTask(
        embeddings,
        data.labels,
        is_query=is_query,
        is_gallery=is_gallery,
        groups=data.sequences,
    )


def means_of(results: QueryResults) -> dict[str, float]:
    """Return the mean of each metric and, of classes, the numbers of queries."""
    if results.first_ranks is None:
        return results.means()
    return results.means() | {
        "queries": len(results.queries),
        "queries_without_positive": len(results.without_positive),
    }


def split_results(
    split: Split,
    task: RetrievalTask,
    ks: Sequence[int] | None = None,
    *,
    metric: Metric = "cosine",
) -> QueryResults:
    """Measure every query of a split; see `measure`.

    Args:
        split: The images, one of which has something to find.
        task: What `task_of` returned for them.
        ks: The k of the metrics; those that the split is too small for are left out. By
            default 1 and 5, with continuous labels 1 and 10.
        metric: How embeddings are compared.

    Returns:
        The metrics of each query; its class by name.
    """
    data = split.data
    if data.is_continuous:
        return _of_labels(split, task, ks or _LABEL_KS, metric)
    allowed = task.compared_counts[task.has_positive].min(initial=len(data))
    chosen = [k for k in ks or _KS if k <= allowed]
    results = query_metrics(task, ks=chosen, metric=metric)
    names = np.array(data.class_names)
    return dataclasses.replace(
        results,
        classes=names[results.classes],
        classes_without_positive=names[results.classes_without_positive],
    )


def _of_labels(
    split: Split, task: RetrievalTask, ks: Sequence[int], metric: Metric
) -> QueryResults:
    data = split.data

    def measured(task: RetrievalTask) -> QueryResults:
        allowed = task.compared_counts.min()
        return label_query_metrics(
            task,
            data.labels,
            [k for k in ks if k <= allowed],
            label_distance=split.label_distance,
            metric=metric,
        )

    results = measured(task)
    if data.sequences is None:
        return results
    among_others = RetrievalTask(task, groups=data.sequences)
    if not among_others.compared_counts.all():
        return results
    others = measured(among_others)
    renamed = {f"{n}_other_sequences": v for n, v in others.values.items()}
    return dataclasses.replace(others, values={**results.values, **renamed})


def clustering_of(
    task: RetrievalTask, labels: np.ndarray, metric: EmbeddingMetric = "cosine"
) -> dict[str, float]:
    """Compare the clusters of k-means, as many as there are labels, with the labels.

    Args:
        task: What `task_of` returned.
        labels: Integers or strings `[N]`.
        metric: How embeddings are compared.

    Returns:
        `clusters`, their number, and what `tfdml.metrics.clustering_metrics` returns.
    """
    count = len(np.unique(labels))
    clusters = cluster(task, count, metric=metric)
    return {"clusters": count} | clustering_metrics(clusters, labels)


def nearest_images(
    task: RetrievalTask,
    asked: np.ndarray,
    k: int,
    metric: EmbeddingMetric = "cosine",
) -> tuple[np.ndarray, np.ndarray]:
    """Find the images nearest to some, as the metrics do.

    Args:
        task: What `task_of` returned.
        asked: Which images search, positions in the split, `[Q]`.
        k: How many are found, at least 1; fewer, perhaps none, if one of them is
            compared with fewer.
        metric: How embeddings are compared.

    Returns:
        Positions in the split, int64 `[Q, k]`, the nearest first, and similarities,
        float32 `[Q, k]`: the cosine, or minus the squared Euclidean distance.
    """
    found, scores = task.nearest(asked, k, metric)
    is_complete = (found >= 0).all(axis=0)
    found, scores = found[:, is_complete], scores[:, is_complete]
    return found, scores if metric == "cosine" else 0 - scores


def monitored(data: DataSet) -> tuple[str, str]:
    """Return the metric that chooses the best epoch, and "max" or "min" for the best.

    Args:
        data: The validation images.
    """
    if data.is_continuous:
        k = max((k for k in _LABEL_KS if k < len(data)), default=1)
        return f"val_label_distance_at_{k}", "min"
    return "val_precision_at_1", "max"


class SplitEvaluation(keras.callbacks.Callback):
    """Measure the validation images at the end of each epoch.

    What `measure` returns goes into the logs, its names after "val_".

    Args:
        split: The validation images.
        embedder: What embeds them.
        metric: How embeddings are compared.
    """

    def __init__(
        self, split: Split, embedder: keras.Model, metric: Metric = "cosine"
    ) -> None:
        super().__init__()
        self._split = split
        self._embedder = embedder
        self._metric: Metric = metric

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Embed the images and add the metrics to the logs."""
        measured = measure(
            self._split,
            lambda split: embed(self._embedder, split),
            metric=self._metric,
        )
        for name, value in (measured or {}).items():
            if logs is not None and not name.startswith("queries"):
                logs[f"val_{name}"] = value
