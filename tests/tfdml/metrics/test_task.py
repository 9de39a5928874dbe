"""Who is compared with whom, against loops over all pairs of items."""

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    Comparisons,
    MetricLimits,
    RetrievalTask,
    cluster,
    match_scores,
    pair_counts,
    query_metrics,
    verification_metrics,
)

COUNT = 50


def drawn(seed, grouped=True):
    """Labels, roles and groups, and the items that each query is compared with."""
    generator = np.random.default_rng(seed)
    labels = np.array(list("abcdef"))[generator.integers(0, 6, COUNT)]
    is_query, is_gallery = generator.random((2, COUNT)) < 0.7
    groups = generator.integers(0, 9, COUNT) if grouped else np.arange(COUNT)
    roles = {"is_query": is_query, "is_gallery": is_gallery}
    if grouped:
        roles["groups"] = groups
    others = [
        [g for g in range(COUNT) if is_gallery[g] and groups[g] != groups[q]]
        for q in range(COUNT)
    ]
    return labels, roles, others


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_comparisons_equal_the_loop_over_pairs(seed, grouped):
    labels, roles, others = drawn(seed, grouped)
    compared = Comparisons(COUNT, labels, **roles)
    positives = [[g for g in others[q] if labels[g] == labels[q]] for q in range(COUNT)]
    assert compared.compared_counts.tolist() == [len(items) for items in others]
    assert compared.positive_counts.tolist() == [len(items) for items in positives]
    assert compared.has_positive.tolist() == [
        bool(roles["is_query"][q] and positives[q]) for q in range(COUNT)
    ]
    found = compared.positives(compared.queries)
    for query, rows in zip(compared.queries, found, strict=True):
        assert compared.searched[rows].tolist() == positives[query]
    for query, rows in enumerate(compared.excluded(np.arange(COUNT))):
        left_out = sorted(set(compared.searched.tolist()) - set(others[query]))
        assert compared.searched[rows[rows >= 0]].tolist() == left_out
        assert (rows[len(left_out) :] == -1).all()


@pytest.mark.parametrize("numbers", [1, 40, 10**6])
@pytest.mark.parametrize("each", [1, 7])
def test_blocks_hold_every_query_once_with_what_it_excludes(numbers, each):
    _, roles, _ = drawn(0)
    compared = Comparisons(COUNT, **roles)
    seen = []
    for block, exclude in compared.blocks(compared.queries, numbers, each):
        assert len(block) == 1 or len(block) * max(each, exclude.shape[1]) <= numbers
        expected = compared.excluded(compared.queries[block])
        np.testing.assert_array_equal(exclude, expected)
        seen += block.tolist()
    assert sorted(seen) == list(range(len(compared.queries)))


def test_query_whose_group_is_the_whole_gallery_has_no_block():
    roles = {"groups": [3, 4, 3], "is_gallery": [True, False, True]}
    compared = Comparisons(3, **roles)
    blocks = [block.tolist() for block, _ in compared.blocks(np.arange(3), 100)]
    assert blocks == [[1]]
    assert compared.compared_counts.tolist() == [0, 2, 0]


@pytest.mark.parametrize("excluded", [2, 2**20])
@pytest.mark.parametrize("k", [1, 6, COUNT])
def test_nearest_are_all_that_a_query_is_compared_with(k, excluded):
    labels, roles, others = drawn(1)
    rows = np.random.default_rng(2).normal(size=(COUNT, 4))
    limits = MetricLimits(excluded=excluded)
    task = RetrievalTask(rows, labels, **roles, limits=limits)
    items, scores = task.nearest(task.queries, k)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for query, found, similar in zip(task.queries, items, scores, strict=True):
        expected = sorted(others[query], key=lambda g: -unit[query] @ unit[g])[:k]
        assert found[: len(expected)].tolist() == expected
        assert (found[len(expected) :] == -1).all()
        cosines = unit[expected] @ unit[query]
        np.testing.assert_allclose(similar[: len(expected)], cosines, atol=1e-6)
        assert (similar[len(expected) :] == -np.inf).all()


def test_task_stands_for_its_arguments_in_every_metric():
    labels, roles, _ = drawn(3)
    rows = np.random.default_rng(3).normal(size=(COUNT, 4)).astype("float32")
    task = RetrievalTask(rows, labels, **roles)
    given = (rows, labels)
    for received, expected in (
        (query_metrics(task, ks=[1]), query_metrics(*given, [1], **roles)),
        (match_scores(task), match_scores(*given, **roles)),
        (pair_counts(task), pair_counts(*given, **roles)),
    ):
        for name, value in vars(expected).items():
            if name == "values":
                assert {n: v.tolist() for n, v in value.items()} == {
                    n: v.tolist() for n, v in getattr(received, name).items()
                }
            elif name != "curve":
                np.testing.assert_array_equal(getattr(received, name), value)
    assert verification_metrics(task) == verification_metrics(*given, **roles)
    np.testing.assert_array_equal(cluster(task, 5), cluster(rows, 5))


def test_embeddings_of_another_task_are_not_checked_again():
    task = RetrievalTask(np.eye(3, dtype="float32"), [0, 0, 1])
    assert RetrievalTask(task, ["x", "y", "y"]).embeddings is task.embeddings


@refusals(
    ("labels", [0, 0], "must have the shape [3]"),
    ("labels", [0.5, 1, 1], "must hold integers or strings"),
    ("is_query", [1, 1, 1], "must be a bool array of shape [3]"),
    ("is_gallery", np.ones(2, bool), "must be a bool array of shape [3]"),
    ("groups", [0, 1], "must have the shape [3]"),
    ("embeddings", np.ones(3), "must have the shape [rows, D]"),
    (
        "embeddings",
        [[np.nan]] * 3,
        "NaN or infinity in row 0. Training that makes",
    ),
)
def test_bad_arguments_of_a_task_are_refused(argument, value, rule):
    valid = {"embeddings": np.eye(3), "labels": [0, 0, 1]}
    refuses(RetrievalTask, argument=argument, value=value, rule=rule, valid=valid)


@refusals(
    ("labels", [0, 0, 1], "must not be given beside a `RetrievalTask`"),
    ("is_query", [True] * 3, "must not be given beside a `RetrievalTask`"),
    ("groups", [0, 1, 2], "must not be given beside a `RetrievalTask`"),
)
def test_arguments_beside_a_task_are_refused(argument, value, rule):
    valid = {"embeddings": RetrievalTask(np.eye(3), [0, 0, 1])}
    for metric in (query_metrics, match_scores, pair_counts, verification_metrics):
        refuses(metric, argument=argument, value=value, rule=rule, valid=valid)


def test_task_without_classes_has_no_positives():
    task = RetrievalTask(np.eye(3))
    for metric in (query_metrics, match_scores, pair_counts):
        with pytest.raises(ValueError, match="`labels` must be given for this metric"):
            metric(task)
