"""The clusters that a published row has, measured at the end of a run."""

import numpy as np
import pytest

from tfdml.metrics import RetrievalTask, clustering_metrics
from training.data.data_set import DataSet
from training.measure.paper_row import published_clusters
from training.recipe.published import Published

LABELS = np.repeat([0, 1, 2, 3], 3)
CATEGORIES = np.repeat(["cup", "chair"], 6)
# The classes of a category lie beside each other.
CORNERS = np.array([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])


def clusters(*metrics, categories=CATEGORIES):
    data = DataSet(
        np.zeros((12, 1, 1, 3), "uint8"),
        LABELS,
        np.full(12, "test"),
        tuple("abcd"),
        categories=categories,
    )
    published = Published(rows={"Table 1": dict.fromkeys(metrics, 50.0)})
    task = RetrievalTask(CORNERS[LABELS].astype("float32"))
    return published_clusters(published, data, task)


def test_only_the_clusters_of_the_row_are_measured():
    perfect = clustering_metrics(LABELS, LABELS)
    assert clusters("clustering.pairwise_f1", "recall_at_1") == {
        "clustering": pytest.approx({"clusters": 4} | perfect)
    }
    assert clusters("superclasses.clustering.nmi_geometric") == {
        "superclasses": {"clustering": pytest.approx({"clusters": 2} | perfect)}
    }


def test_nothing_is_clustered_without_need():
    assert clusters("recall_at_1", "mean_average_precision") == {}
    row = "superclasses.clustering.nmi_arithmetic"
    assert clusters(row, categories=None) == {}
