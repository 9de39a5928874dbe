"""Measure the row that a table of a paper has of a model."""

from collections.abc import Mapping
from typing import Any

from tfdml.messages import cut, shown
from tfdml.metrics import RetrievalTask

from ..data.data_set import DataSet
from ..recipe.paper_tables import PAPER_TABLES, filled_table
from ..recipe.published import Published
from .measure import EmbeddingMetric, clustering_of


def check_table(name: str, data: DataSet) -> None:
    """Raise a `ValueError` unless there is a table of this name for the images."""
    suited = [
        known
        for known, table in PAPER_TABLES.items()
        if table.is_continuous == data.is_continuous
    ]
    if name not in suited:
        labels = "continuous labels" if data.is_continuous else "classes"
        raise ValueError(
            f"`table` must be one of {cut(', '.join(suited))} for images with "
            f"{labels}. Received: {shown(name)}."
        )


def paper_row(
    name: str,
    data: DataSet,
    task: RetrievalTask,
    metrics: Mapping[str, float],
    metric: EmbeddingMetric = "cosine",
) -> dict[str, Any]:
    """Fill a table of a paper, and cluster the images if it has such columns.

    Args:
        name: A name that `check_table` has checked.
        data: The images.
        task: Their embeddings.
        metrics: The means over queries.
        metric: How embeddings are compared.

    Returns:
        As `training.recipe.paper_tables.filled_table`.
    """
    table = PAPER_TABLES[name]
    if not table.has_clustering:
        return filled_table(name, metrics)
    labels, clusters_of = data.labels, "classes"
    if table.of_categories and data.categories is not None and data.has_categories:
        labels, clusters_of = data.categories, "categories"
    clusters = clustering_of(task, labels, metric)
    return filled_table(name, metrics, clusters, clusters_of=clusters_of)


def published_clusters(
    published: Published,
    data: DataSet,
    task: RetrievalTask,
    metric: EmbeddingMetric = "cosine",
) -> dict[str, Any]:
    """Cluster the images as far as published rows have metrics of clusters.

    Args:
        published: What a paper printed.
        data: The images.
        task: Their embeddings.
        metric: How embeddings are compared.

    Returns:
        `clustering` and `superclasses`, as in the `metrics.json` of an evaluation.
    """
    found: dict[str, Any] = {}
    if published.has_clusters_of("classes"):
        found["clustering"] = clustering_of(task, data.labels, metric)
    categories = data.categories if data.has_categories else None
    if published.has_clusters_of("categories") and categories is not None:
        clusters = clustering_of(task, categories, metric)
        found["superclasses"] = {"clustering": clusters}
    return found
