"""Measure the row that a table of a paper has of a model."""

from collections.abc import Mapping
from typing import Any

from tfdml.messages import cut, shown
from tfdml.metrics import RetrievalTask

from ..data.data_set import DataSet
from ..recipe.paper_tables import PAPER_TABLES, filled_table
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
