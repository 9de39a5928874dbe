"""Metrics of continuous labels against naive loops."""

import math
import tracemalloc

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    MetricLimits,
    RetrievalTask,
    label_distance_metrics,
    label_query_metrics,
)


def naive(embeddings, labels, k, groups=None):
    """Both metrics by their definition, one query after the other."""
    distances, ndcgs = [], []
    for q in range(len(labels)):
        others = [
            i
            for i in range(len(labels))
            if (i != q if groups is None else groups[i] != groups[q])
        ]
        cosine = {
            i: embeddings[q]
            @ embeddings[i]
            / np.linalg.norm(embeddings[q])
            / np.linalg.norm(embeddings[i])
            for i in others
        }
        apart = {i: math.dist(labels[q], labels[i]) for i in others}
        found = [apart[i] for i in sorted(others, key=lambda i: -cosine[i])[:k]]
        ideal = sorted(apart.values())[:k]
        distances.append(sum(found) / k)
        gain, most = (
            sum(2 ** -math.log2(1 + d) / math.log2(i + 2) for i, d in enumerate(ranked))
            for ranked in (found, ideal)
        )
        ndcgs.append(gain / most)
    return sum(distances) / len(distances), sum(ndcgs) / len(ndcgs)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("block", [2**22, 40])
def test_metrics_equal_the_definition(grouped, block):
    generator = np.random.default_rng(3)
    embeddings = generator.normal(size=(30, 4))
    labels = generator.normal(size=(30, 3))
    groups = generator.integers(0, 4, 30) if grouped else None
    limits = MetricLimits(label_distances=block)
    task = RetrievalTask(embeddings, groups=groups, limits=limits)
    received = label_distance_metrics(task, labels, (1, 7))
    for k in (1, 7):
        distance, ndcg = naive(embeddings, labels, k, groups)
        assert received[f"label_distance_at_{k}"] == pytest.approx(distance, rel=1e-9)
        assert received[f"ndcg_at_{k}"] == pytest.approx(ndcg, rel=1e-9)


def test_single_queries_are_kept_with_their_groups():
    generator = np.random.default_rng(3)
    embeddings, labels = generator.normal(size=(30, 4)), generator.normal(size=(30, 3))
    groups = np.array(list("abc"))[generator.integers(0, 3, 30)]
    results = label_query_metrics(embeddings, labels, (4,), groups=groups)
    assert results.queries.tolist() == list(range(30))
    assert results.classes.tolist() == groups.tolist()
    received = label_distance_metrics(embeddings, labels, (4,), groups=groups)
    assert results.means() == received
    others = np.flatnonzero(groups != groups[5])
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    nearest = others[np.argsort(-(unit[others] @ unit[5]))[:4]]
    apart = [math.dist(labels[5], labels[i]) for i in nearest]
    assert results.values["label_distance_at_4"][5] == pytest.approx(sum(apart) / 4)


def test_ranking_by_the_labels_themselves_has_an_ndcg_of_1():
    angles = np.linspace(0, 1, 12)
    embeddings = np.stack([np.cos(angles), np.sin(angles)], 1)
    received = label_distance_metrics(embeddings, angles, (1, 5))
    assert received["ndcg_at_5"] == pytest.approx(1, abs=1e-12)


def test_function_takes_the_place_of_the_euclidean_distance():
    labels = np.array([0, 1, 0, 1])
    embeddings = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]])
    differs = label_distance_metrics(
        embeddings,
        labels,
        (1,),
        label_distance=lambda a, b: a[:, np.newaxis] != b,
    )
    assert differs["label_distance_at_1"] == 0


@pytest.mark.parametrize(
    "labels",
    [
        [0.0, 1.0, 3.0],
        [1.6e9, 1.6e9 + 1, 1.6e9 + 3],
        [-1e14, 1 - 1e14, 3 - 1e14],
        np.array([0, 1, 3]) + 2**60,
        np.array([-3, -2, 0]) + np.iinfo("int64").max,
        np.array([0, 1, 3], "uint64") + 2**63,
        np.array([0, 1, 3], "int8"),
    ],
    ids=str,
)
def test_labels_far_from_zero_keep_their_distances(labels):
    embeddings = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    received = label_distance_metrics(embeddings, np.array(labels), [1, 2])
    # The first finds the second, which finds the first, as does the third.
    assert received["label_distance_at_1"] == pytest.approx((1 + 1 + 2) / 3, rel=1e-12)
    expected = ((1 + 3) + (1 + 2) + (2 + 3)) / 6
    assert received["label_distance_at_2"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1, 1e200])
@pytest.mark.parametrize("dimension", [1, 3])
def test_labels_that_nearly_agree_keep_their_distances(scale, dimension):
    generator = np.random.default_rng(0)
    labels = generator.normal(size=(2, dimension))[[0, 0, 0, 1, 1, 1]]
    labels = scale * (labels + 1e-9 * generator.normal(size=(6, dimension)))
    labels = np.append(labels, [[1e6 * scale] * dimension], axis=0)
    embeddings = np.array([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3 + [[-1.0, -0.9]])
    results = label_query_metrics(embeddings, labels, [2])
    for query, others in ((0, (1, 2)), (4, (3, 5))):
        apart = sum(math.dist(labels[query], labels[i]) for i in others) / 2
        received = results.values["label_distance_at_2"][query]
        assert received == pytest.approx(apart, rel=1e-9, abs=0)


def test_zero_row_has_the_similarity_0_with_all():
    embeddings = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [1.0, 0.1]])
    labels = np.array([0.0, 1.0, 10.0, 100.0])
    received = label_query_metrics(embeddings, labels, [1])
    # To the first all are alike; to the second the first is the most similar.
    assert received.values["label_distance_at_1"].tolist() == [1, 1, 90, 90]


def test_many_groups_take_no_more_memory_than_none():
    limits = MetricLimits(label_distances=2**14)
    count = 2000
    generator = np.random.default_rng(1)
    embeddings = generator.normal(size=(count, 4)).astype("float32")
    labels = generator.normal(size=(count, 1))
    peaks = []
    for groups in (None, np.arange(count) // 2):
        task = RetrievalTask(embeddings, groups=groups, limits=limits)
        tracemalloc.start()
        label_query_metrics(task, labels, [5])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_groups_of_many_sizes_are_left_out():
    generator = np.random.default_rng(4)
    embeddings, labels = generator.normal(size=(60, 3)), generator.normal(size=(60, 2))
    groups = np.array(["a"] * 25 + ["b"] * 2 + [f"c{i}" for i in range(33)])
    groups = groups[generator.permutation(60)]
    received = label_distance_metrics(embeddings, labels, [1, 35], groups=groups)
    for k in (1, 35):
        distance, ndcg = naive(embeddings, labels, k, groups)
        assert received[f"label_distance_at_{k}"] == pytest.approx(distance, rel=1e-9)
        assert received[f"ndcg_at_{k}"] == pytest.approx(ndcg, rel=1e-9)


def test_ks_may_be_an_array():
    embeddings, labels = np.eye(4) + 0.1, np.arange(4.0)
    received = label_distance_metrics(embeddings, labels, np.array([1, 3]))
    assert received == label_distance_metrics(embeddings, labels, (1, 3))
    assert list(received)[2:] == ["label_distance_at_3", "ndcg_at_3"]


@refusals(
    ("ks", (3,), "must be from 1 to 2, the items that every query is compared with"),
    ("ks", (0,), "must be a whole number of at least 1. Received: ks=0"),
    ("ks", [1.5], "must be a whole number of at least 1. Received: ks=1.5"),
    ("ks", 1, "must be a sequence of whole numbers"),
    ("ks", np.array([], int), "must hold at least one number"),
    ("groups", [7, 7, 7], "must hold two groups or more"),
    ("groups", [0.0, 1, 2], "must hold integers or strings"),
    ("groups", np.zeros(2), "must have the shape [3]"),
    ("labels", np.zeros((4, 1)), "must be [N, dimension] and `labels` [N, ...]"),
    ("labels", [[0.0], [np.inf], [1.0]], "must be finite. Received: [inf] in row 1"),
    ("labels", ["a", "b", "c"], "must be real numbers where no `label_distance`"),
    ("labels", [1e308, -1e308, 0], "are too far apart for float64: scale them down"),
    ("embeddings", np.ones(3), "must have the shape [rows, D]"),
    ("embeddings", np.full((3, 2), np.nan), "in row 0. Training that makes such"),
    ("label_distance", lambda a, b: np.full((3, 3), -1), "of at least 0. Received: -1"),
    ("label_distance", lambda a, b: np.full((3, 3), np.inf), "Received: inf"),
    ("label_distance", lambda a, b: np.zeros(3), "[3, 3] for 3 and 3 labels"),
    ("label_distance", lambda a, b: np.zeros((3, 1)), "Received: (3, 1)"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"embeddings": np.eye(3), "labels": np.zeros((3, 1)), "ks": (2,)}
    refuses(
        label_distance_metrics, argument=argument, value=value, rule=rule, valid=valid
    )


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_items_are_refused(count):
    with pytest.raises(ValueError, match=f"two items or more. Received: {count}"):
        label_distance_metrics(np.ones((count, 2)), np.zeros((count, 1)), (2,))


def test_groups_smaller_than_the_largest_leave_fewer_to_find():
    with pytest.raises(ValueError, match="`ks` must be from 1 to 1"):
        label_distance_metrics(np.eye(3), np.zeros(3), (2,), groups=[0, 0, 1])


def test_task_with_classes_or_roles_is_refused():
    for task in (
        RetrievalTask(np.eye(3), [0, 0, 1]),
        RetrievalTask(np.eye(3), is_query=[True, True, False]),
    ):
        with pytest.raises(ValueError, match="must be a task without classes and"):
            label_distance_metrics(task, np.zeros(3), (1,))
