"""Clusters against a naive Lloyd, and their metrics against golden numbers."""

import itertools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tfdml.metrics import cluster, clustering_metrics

GOLDENS = json.loads(
    (Path(__file__).parents[2] / "goldens" / "goldens.json").read_text(encoding="utf-8")
)
CASES = [c for c in GOLDENS["metric_cases"] if "clusters" in c["expected"]]


def naive_lloyd(rows, first, iterations):
    """Lloyd's algorithm in float64, every item against every centre."""
    rows = np.asarray(rows, dtype="float64")
    centers = rows[first].copy()
    for moves in range(iterations + 1):
        apart = np.square(rows[:, None] - centers).sum(axis=2)
        clusters = apart.argmin(axis=1)
        if moves < iterations:
            for name in range(len(centers)):
                assert (clusters == name).any(), "this oracle refills no cluster"
                centers[name] = rows[clusters == name].mean(axis=0)
    return clusters


def start_from(monkeypatch, first):
    monkeypatch.setattr(
        "tfdml.metrics._kmeans._spread_items", lambda *_: np.asarray(first)
    )


@pytest.mark.parametrize("iterations", [1, 2, 3, 6, 50])
@pytest.mark.parametrize("block", [2**23, 40])
def test_clusters_equal_those_of_the_naive_loop(iterations, block, monkeypatch):
    monkeypatch.setattr("tfdml.metrics._kmeans._BLOCK_ELEMENTS", block)
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(300, 3))
    first = np.arange(25)
    start_from(monkeypatch, first)
    received = cluster(rows, 25, metric="squared_euclidean", iterations=iterations)
    assert received.dtype == np.int64
    np.testing.assert_array_equal(received, naive_lloyd(rows, first, iterations))


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_item_as_close_to_a_moved_center_of_a_lower_number_joins_it(
    iterations, monkeypatch
):
    half = [8, -4, -1, 5, 1, -2, 5, 1, -2, -4, -2, -4]
    # Their mean is 0 and all means of clusters are eighths: float32 rounds nothing.
    rows = np.array([*half, *(-number for number in half)], float)[:, np.newaxis]
    first = [13, 22, 4, 1]
    start_from(monkeypatch, first)
    received = cluster(rows, 4, metric="squared_euclidean", iterations=iterations)
    np.testing.assert_array_equal(received, naive_lloyd(rows, first, iterations))


def test_cosine_clusters_rows_of_length_1(monkeypatch):
    generator = np.random.default_rng(6)
    rows = generator.normal(size=(200, 4))
    start_from(monkeypatch, np.arange(9))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    received = cluster(rows * generator.uniform(0.1, 9, (200, 1)), 9, iterations=5)
    np.testing.assert_array_equal(received, naive_lloyd(unit, np.arange(9), 5))


@pytest.mark.parametrize("start", [0, 256])
def test_every_item_ends_nearest_to_its_own_mean(start, monkeypatch):
    monkeypatch.setattr("tfdml.metrics._kmeans._SPREAD_START", start)
    rows = np.random.default_rng(1).normal(size=(400, 8))
    clusters = cluster(rows, 30, metric="squared_euclidean", iterations=200)
    assert np.unique(clusters).tolist() == list(range(30))
    means = np.stack([rows[clusters == name].mean(axis=0) for name in range(30)])
    apart = np.square(rows[:, None] - means).sum(axis=2)
    own = apart[np.arange(400), clusters]
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


def test_empty_cluster_takes_the_item_farthest_from_its_center(monkeypatch):
    rows = [[0.0], [0.0], [5.0], [7.0], [5.5]]
    start_from(monkeypatch, [0, 1, 2])  # the centres 0, 0 and 5
    received = cluster(rows, 3, metric="squared_euclidean")
    assert received.tolist() == [0, 0, 2, 1, 2]


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "`count` must be a whole number of at least 1"),
        ({"count": 5}, "`count` must be at most the number of items, 4.*count=5"),
        ({"metric": "dot_product"}, "`metric` must be one of cosine, squared_eucl"),
        ({"iterations": 0}, "`iterations` must be a whole number"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
        ({"embeddings": np.full((4, 2), np.nan)}, "`embeddings` must be finite"),
        ({"embeddings": np.ones(4)}, r"`embeddings` must have the shape \[rows, D\]"),
    ],
)
def test_wrong_arguments_of_clusters_are_named(changes, message):
    arguments = {"embeddings": np.eye(4), "count": 2}
    with pytest.raises(ValueError, match=message):
        cluster(**(arguments | changes))


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
    hits, wrong, missed = table[True, True], table[True, False], table[False, True]
    precision, recall = hits / (hits + wrong), hits / (hits + missed)
    chance = (hits + wrong) * (hits + missed) / sum(table.values())
    most = (2 * hits + wrong + missed) / 2
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
        ([0.0, 1.0], [0, 1], "`clusters` must hold integers or strings.*float"),
        ([0, 1], [[0], [1]], r"`labels` must have the shape \[2\]"),
    ],
)
def test_wrong_clusters_and_labels_are_named(clusters, labels, message):
    with pytest.raises(ValueError, match=message):
        clustering_metrics(clusters, labels)
