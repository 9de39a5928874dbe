"""Clusters at their fixed point, and their metrics against golden numbers."""

import itertools
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import cluster, clustering_metrics

GOLDENS = json.loads(
    (Path(__file__).parents[2] / "goldens" / "goldens.json").read_text(encoding="utf-8")
)
CASES = [c for c in GOLDENS["metric_cases"] if "clusters" in c["expected"]]


@pytest.mark.parametrize("count", [30, 300], ids=["k-means++", "random"])
def test_every_item_ends_nearest_to_its_own_mean(count):
    rows = np.random.default_rng(1).normal(size=(600, 8))
    clusters = cluster(rows, count, metric="squared_euclidean", iterations=200)
    assert clusters.dtype == np.int64
    assert np.unique(clusters).tolist() == list(range(count))
    means = np.stack([rows[clusters == name].mean(axis=0) for name in range(count)])
    apart = np.square(rows[:, None] - means).sum(axis=2)
    own = apart[np.arange(600), clusters]
    assert (own <= apart.min(axis=1) + 1e-5).all()


@pytest.mark.parametrize("metric", ["cosine", "squared_euclidean"])
@pytest.mark.parametrize("seed", range(5))
def test_clusters_far_apart_are_found_from_every_seed(metric, seed):
    classes = np.repeat(np.arange(20), 7)
    rows = 10 * np.eye(20)[classes]
    rows += np.random.default_rng(seed).normal(size=rows.shape) * 0.1
    clusters = cluster(rows, 20, metric=metric, seed=seed)
    assert clustering_metrics(clusters, classes)["adjusted_rand"] == 1


@pytest.mark.parametrize(("scale", "offset"), [(1, 1e4), (1e-30, 0), (1e30, 0)])
def test_clusters_stay_sharp_far_from_the_origin_and_at_any_scale(scale, offset):
    classes = np.repeat(np.arange(4), 5)
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    rows = offset + scale * corners[classes]
    clusters = cluster(rows, 4, metric="squared_euclidean")
    assert clustering_metrics(clusters, classes)["adjusted_rand"] == 1


def test_cosine_clusters_rows_of_length_1():
    generator = np.random.default_rng(6)
    rows = generator.normal(size=(200, 4))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    received = cluster(rows * generator.uniform(0.1, 9, (200, 1)), 9, iterations=5)
    expected = cluster(unit, 9, metric="squared_euclidean", iterations=5)
    np.testing.assert_array_equal(received, expected)


def test_fewer_distinct_items_than_clusters_leave_numbers_unused():
    rows = np.repeat(np.random.default_rng(0).normal(size=(3, 16)), 6, axis=0)
    clusters = cluster(rows, 9)
    assert clusters.min() >= 0
    assert clusters.max() < 9
    owners = [set(clusters[start : start + 6]) for start in (0, 6, 12)]
    assert all(not a & b for a, b in itertools.combinations(owners, 2))


def test_equal_and_zero_rows_give_clusters():
    assert cluster(np.ones((5, 3)), 2).shape == (5,)
    assert cluster(np.zeros((5, 3)), 5).shape == (5,)
    assert cluster([[1.0, 0.0], [0.0, 0.0]], 1).tolist() == [0, 0]


@pytest.mark.parametrize("count", [10, 300])
def test_seed_decides_and_input_stays(count):
    rows = np.random.default_rng(2).normal(size=(500, 6)).astype("float32")
    before = rows.copy()
    received = [cluster(rows, count, seed=seed, iterations=3) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(received[0], received[1])
    assert (received[0] != received[2]).any()
    np.testing.assert_array_equal(rows, before)


@refusals(
    ("count", 0, "must be a whole number of at least 1"),
    ("count", 5, "must be at most the number of items, 4"),
    ("metric", "dot_product", "must be one of cosine, squared_euclidean"),
    ("iterations", 0, "must be a whole number of at least 1"),
    ("seed", -1, "must be a whole number of at least 0"),
    ("embeddings", np.full((4, 2), np.nan), "must be finite in float32"),
    ("embeddings", np.ones(4), "must have the shape [rows, D]"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"embeddings": np.eye(4), "count": 2}
    refuses(cluster, argument=argument, value=value, rule=rule, valid=valid)


def test_missing_scikit_learn_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(ImportError, match=r'pip install "tfdml\[evaluation\]"'):
        cluster(np.eye(4), 2)
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(ImportError, match=r'pip install "tfdml\[evaluation\]"'):
        clustering_metrics([0, 1], [0, 1])


def test_numbers_too_large_for_float32_are_refused():
    rows = np.array([[3e38], [-3e38], [-3e38]])
    with pytest.raises(ValueError, match="too large for float32: scale them down"):
        cluster(rows, 2, metric="squared_euclidean")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_metrics_equal_the_golden_numbers(case):
    labels, expected = case["inputs"]["y"], case["expected"]
    received = clustering_metrics(expected["clusters"], labels)
    same = clustering_metrics(labels, labels)
    for name in ("nmi_geometric", "nmi_arithmetic", "pairwise_f1"):
        assert received[name] == pytest.approx(expected[name], rel=0, abs=1e-12)
    assert same["nmi_geometric"] == pytest.approx(
        expected["nmi_self_geometric"], abs=1e-12
    )
    assert same["pairwise_f1"] == expected["pairwise_f1_self"]
    assert same["adjusted_rand"] == 1


def naive_metrics(clusters, labels):
    """Each metric by its definition: sums over items and loops over pairs."""
    count = len(labels)
    groups, classes = Counter(clusters), Counter(labels)
    both = Counter(zip(clusters, labels, strict=True))
    shared = sum(
        n / count * math.log(n * count / groups[g] / classes[c])
        for (g, c), n in both.items()
    )
    entropy, other = (
        -sum(n / count * math.log(n / count) for n in sizes.values())
        for sizes in (groups, classes)
    )
    table = Counter(
        (clusters[i] == clusters[j], labels[i] == labels[j])
        for i, j in itertools.combinations(range(count), 2)
    )
    hits, mixed, missed = table[True, True], table[True, False], table[False, True]
    precision, recall = hits / (hits + mixed), hits / (hits + missed)
    chance = (hits + mixed) * (hits + missed) / sum(table.values())
    most = (2 * hits + mixed + missed) / 2
    return {
        "nmi_geometric": shared / math.sqrt(entropy * other),
        "nmi_arithmetic": 2 * shared / (entropy + other),
        "pairwise_f1": 2 * precision * recall / (precision + recall),
        "adjusted_rand": (hits - chance) / (most - chance),
    }


@pytest.mark.parametrize("seed", range(4))
def test_metrics_equal_the_definition_and_names_do_not_matter(seed):
    generator = np.random.default_rng(seed)
    clusters, labels = generator.integers(0, 6, (2, 60))
    expected = naive_metrics(clusters.tolist(), labels.tolist())
    renamed = [f"class {9 - label}" for label in labels]
    for received in (
        clustering_metrics(clusters, labels),
        clustering_metrics(-7 * clusters, renamed),
    ):
        assert received == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("clusters", "labels", "nmi", "f1", "rand"),
    [
        ([0, 0, 0], [5, 5, 5], 1, 1, 1),
        ([0, 1, 1], [5, 5, 5], 0, 2 * 1 / (1 + 3), 0),
        ([0, 1, 2], [5, 5, 5], 0, 0, 0),
        ([0, 1, 2], [5, 6, 7], 1, 0, 1),
        ([0, 0, 0], [5, 6, 7], 0, 0, 0),
        ([0], [5], 1, 0, 1),
    ],
)
def test_degenerate_clusters_have_the_stated_metrics(clusters, labels, nmi, f1, rand):
    received = clustering_metrics(clusters, labels)
    assert received["nmi_geometric"] == pytest.approx(nmi, abs=1e-12)
    assert received["nmi_arithmetic"] == pytest.approx(nmi, abs=1e-12)
    assert received["pairwise_f1"] == f1
    assert received["adjusted_rand"] == rand


def test_metrics_of_many_items_do_not_overflow():
    labels = np.repeat(np.arange(2), 100_000)
    clusters = np.append(labels[1:], 0)  # one item of each class is in the other
    received = clustering_metrics(clusters, labels)
    # By hand: 2 cells of 99,999 and 2 of 1.
    hits = 2 * math.comb(99_999, 2)
    assert received["pairwise_f1"] == hits / (2 * math.comb(100_000, 2))
    assert 0.9999 < received["adjusted_rand"] < 1


@pytest.mark.parametrize(
    ("clusters", "labels", "message"),
    [
        ([], [], "`clusters` must hold at least one item"),
        ([0, 1], [0], r"`labels` must have the shape \[2\].*\(1,\)"),
        ([0.5, 1.0], [0, 1], "`clusters` must hold whole numbers or strings.*0.5"),
        ([0, 1], [[0, 1], [1, 0]], r"`labels` must have the shape \[2\]"),
    ],
)
def test_bad_clusters_and_labels_are_refused(clusters, labels, message):
    with pytest.raises(ValueError, match=message):
        clustering_metrics(clusters, labels)
