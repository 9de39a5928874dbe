"""Verification over all pairs against golden numbers and loops over pairs."""

import itertools
import json
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import (
    MetricLimits,
    PairCounts,
    RetrievalTask,
    pair_counts,
    precision_recall,
    roc_auc,
    roc_curve,
    true_accept_rates,
    verification_metrics,
)
from tfdml.metrics._pair_counts import STEP, accepted_by_class

GOLDENS = json.loads(
    (Path(__file__).parents[2] / "goldens" / "goldens.json").read_text(encoding="utf-8")
)
# Its golden curve separates pairs of equal rows, by the last bit of their cosine: 1.0
# and 0.9999999999999999. It is tested against the definition below.
PARTED = "metrics/ties_duplicate_rows"
CASES = [
    case
    for case in GOLDENS["metric_cases"]
    if "pair_roc_auc" in case["expected"] and case["id"] != PARTED
]

# Their cosines, such as 0.6 and 24 / 25, stay in one bin whatever float32 rounds.
VECTORS = np.array([[2, 0], [0, 1], [-1, 0], [3, 4], [4, 3], [-3, 4], [0, 0]])


def naive_pairs(rows, is_query=None, is_gallery=None, groups=None):
    """List every pair that counts."""
    items = range(len(rows))
    pairs = itertools.combinations(items, 2)
    if is_query is not None or is_gallery is not None:
        pairs = (
            (q, g)
            for q, g in itertools.product(items, items)
            if q != g
            and (is_query is None or is_query[q])
            and (is_gallery is None or is_gallery[g])
        )
    return [(a, b) for a, b in pairs if groups is None or groups[a] != groups[b]]


def naive_similarity(a, b):
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return 0.0 if lengths == 0 else round(float(a @ b / lengths) * 2**20) / 2**20


def drawn(seed, count=40):
    generator = np.random.default_rng(seed)
    rows = VECTORS[generator.integers(0, len(VECTORS), count)]
    return generator, rows, generator.integers(0, 5, count)


CHOICES = {
    "all": {},
    "roles": {"is_query", "is_gallery"},
    "queries": {"is_query"},
    "gallery": {"is_gallery"},
    "groups": {"groups"},
    "roles and groups": {"is_query", "is_gallery", "groups"},
}


def chosen(names, generator, count=40):
    values = {
        "is_query": generator.random(count) < 0.5,
        "is_gallery": generator.random(count) < 0.7,
        "groups": generator.integers(0, 8, count),
    }
    return {name: values[name] for name in names}


@pytest.mark.parametrize("names", CHOICES.values(), ids=CHOICES.keys())
@pytest.mark.parametrize("block", [1, 100, 2**23])
def test_counts_equal_those_of_the_loop(names, block):
    generator, rows, labels = drawn(len(names))
    options = chosen(names, generator)
    expected = Counter(
        (naive_similarity(rows[a], rows[b]), bool(labels[a] == labels[b]))
        for a, b in naive_pairs(rows, **options)
    )
    limits = MetricLimits(pairs=block)
    counts = pair_counts(RetrievalTask(rows, labels, **options, limits=limits))
    scores = sorted({score for score, _ in expected})
    assert counts.scores.tolist() == scores
    assert counts.positives.tolist() == [expected[score, True] for score in scores]
    assert counts.negatives.tolist() == [expected[score, False] for score in scores]
    assert counts.positives.dtype == counts.negatives.dtype == np.int64


@pytest.mark.parametrize("names", CHOICES.values(), ids=CHOICES.keys())
def test_accepted_pairs_of_each_class_equal_those_of_the_loop(names):
    generator, rows, labels = drawn(7)
    options = chosen(names, generator)
    thresholds = [-1, 0, 0.6, 0.97, 1, 1 + STEP]
    accepted, pairs = accepted_by_class(
        RetrievalTask(rows, labels, **options), thresholds
    )
    positive = [p for p in naive_pairs(rows, **options) if labels[p[0]] == labels[p[1]]]
    for name in range(5):
        scores = [
            naive_similarity(rows[a], rows[b]) for a, b in positive if labels[a] == name
        ]
        assert pairs[name] == len(scores)
        for row, threshold in zip(accepted, thresholds, strict=True):
            # 0.6 is no multiple of 2^-20: what was rounded down to below it fails.
            assert row[name] == sum(score >= threshold for score in scores)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_auc_and_curve_equal_the_golden_numbers(case):
    counts = pair_counts(case["inputs"]["X"], case["inputs"]["y"])
    expected = case["expected"]
    if expected["pair_roc_auc"] is None:
        with pytest.raises(ValueError, match=r"no (positive|negative) pair"):
            roc_auc(counts)
        with pytest.raises(ValueError, match=r"no (positive|negative) pair"):
            roc_curve(counts)
        return
    assert roc_auc(counts) == pytest.approx(expected["pair_roc_auc"], rel=0, abs=1e-12)
    false, true, thresholds = roc_curve(counts)
    points = expected["roc_points"]
    corners = [
        here
        for before, here, after in zip(
            [[-1, -1], *points], points, [*points[1:], [2, 2]], strict=False
        )
        if not any(before[axis] == here[axis] == after[axis] for axis in (0, 1))
    ]
    np.testing.assert_allclose(np.stack([false, true], 1), corners, atol=1e-12)
    assert (np.diff(thresholds) < 0).all()


def test_pairs_of_equal_rows_tie():
    (case,) = [c for c in GOLDENS["metric_cases"] if c["id"] == PARTED]
    rows, labels = np.array(case["inputs"]["X"]), case["inputs"]["y"]
    pairs = naive_pairs(rows)
    scores = [naive_similarity(rows[a], rows[b]) for a, b in pairs]
    alike = [labels[a] == labels[b] for a, b in pairs]
    wins = sum(
        (score > other) + (score == other) / 2
        for score, positive in zip(scores, alike, strict=True)
        for other, also in zip(scores, alike, strict=True)
        if positive and not also
    )
    received = roc_auc(pair_counts(rows, labels))
    assert received == pytest.approx(wins / sum(alike) / alike.count(False), rel=1e-12)


def test_equal_rows_tie_wherever_they_stand():
    generator = np.random.default_rng(8)
    distinct = generator.normal(size=(12, 64))
    kinds = generator.integers(0, 12, 150)
    counts = pair_counts(distinct[kinds], np.arange(150) % 2)
    assert len(counts.scores) <= 12 * 11 / 2 + 1


def fixed_counts():
    return PairCounts(
        np.array([-0.5, 0.0, 0.25, 0.5, 0.75]),
        np.array([1, 0, 2, 4, 3]),
        np.array([40, 7, 2, 1, 0]),
    )


def test_area_counts_ties_half():
    # Negatives below each positive score, ties half, by hand.
    wins = 1 * 20 + 2 * (47 + 1) + 4 * (49 + 0.5) + 3 * 50
    assert roc_auc(fixed_counts()) == pytest.approx(wins / (10 * 50), rel=1e-15)


def test_curve_has_the_points_counted_by_hand():
    false, true, thresholds = roc_curve(fixed_counts())
    assert false.tolist() == [0, 0, 1 / 50, 3 / 50, 10 / 50, 1]
    assert true.tolist() == [0, 3 / 10, 7 / 10, 9 / 10, 9 / 10, 1]
    assert thresholds.tolist() == [0.75 + STEP, 0.75, 0.5, 0.25, 0, -0.5]


def test_curve_leaves_out_points_inside_a_line():
    counts = PairCounts(
        np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        np.array([0, 0, 0, 2, 3, 4]),
        np.array([4, 3, 2, 0, 0, 0]),
    )
    false, true, thresholds = roc_curve(counts)
    assert (false.tolist(), true.tolist()) == ([0, 0, 1], [0, 1, 1])
    assert thresholds.tolist() == [0.5 + STEP, 0.3, 0.0]


def test_precision_and_recall_have_the_points_counted_by_hand():
    precision, recall, thresholds = precision_recall(fixed_counts())
    assert precision.tolist() == [1, 7 / 8, 9 / 12, 10 / 60]
    assert recall.tolist() == [0.3, 0.7, 0.9, 1]
    assert thresholds.tolist() == [0.75, 0.5, 0.25, -0.5]


@pytest.mark.parametrize(
    ("rate", "accepted", "threshold"),
    [
        (1 / 50, 7 / 10, 0.5),
        (0.059, 7 / 10, 0.5),
        (0.06, 9 / 10, 0.25),
        (0.2, 9 / 10, 0.0),
        (0.99, 9 / 10, 0.0),
    ],
)
def test_threshold_accepts_most_within_the_rate(rate, accepted, threshold):
    (point,) = true_accept_rates(fixed_counts(), [rate])
    assert point == (rate, accepted, threshold)


def test_threshold_accepts_none_where_the_highest_score_accepts_too_many():
    counts = PairCounts(np.array([0.0, 0.5]), np.array([1, 9]), np.array([50, 50]))
    (point,) = true_accept_rates(counts, [0.1])
    assert point == (0.1, 0.0, 0.5 + STEP)


@pytest.mark.parametrize("negatives", [10, 49, 999, 1000])
def test_usual_rates_are_those_that_the_negatives_can_measure(negatives):
    counts = PairCounts(
        np.array([0.0, 1.0]), np.array([0, 1]), np.array([negatives, 0])
    )
    rates = [point.false_accept_rate for point in true_accept_rates(counts)]
    assert rates == [10.0**-i for i in (1, 2, 3, 4) if 10**i <= negatives]
    assert true_accept_rates(counts, [1 / negatives])[0].true_accept_rate == 1
    message = f"`false_accept_rates` must be below 1 .* {negatives} cannot"
    for rate in (0.99 / negatives, 0, 1, np.nan):
        with pytest.raises(ValueError, match=message):
            true_accept_rates(counts, [rate])


def naive_rates(rows, labels, rate):
    """The most positives accepted at any threshold within the rate."""
    pairs = list(itertools.combinations(range(len(rows)), 2))
    scores = np.array([naive_similarity(rows[a], rows[b]) for a, b in pairs])
    alike = np.array([labels[a] == labels[b] for a, b in pairs])
    return max(
        (scores[alike] >= threshold).mean()
        for threshold in [*scores, 2]
        if (scores[~alike] >= threshold).mean() <= rate
    )


def test_metrics_equal_the_definition_and_lie_in_their_intervals():
    generator = np.random.default_rng(2)
    labels = np.repeat(np.arange(12), 5)
    rows = generator.normal(size=(12, 6))[labels] + generator.normal(size=(60, 6))
    names = [f"class {label}" for label in labels]
    received = verification_metrics(rows, names, [0.1, 0.005])
    assert list(received) == [
        "pair_auc",
        "tar_at_far_0.1",
        "tar_at_far_0.1_low",
        "tar_at_far_0.1_high",
        "threshold_at_far_0.1",
        "tar_at_far_0.005",
        "tar_at_far_0.005_low",
        "tar_at_far_0.005_high",
        "threshold_at_far_0.005",
        "positive_pairs",
        "negative_pairs",
    ]
    assert received["positive_pairs"] == 12 * 10
    assert received["negative_pairs"] == 60 * 59 / 2 - 12 * 10
    for rate in ("0.1", "0.005"):
        name = f"tar_at_far_{rate}"
        assert received[name] == naive_rates(rows, labels, float(rate))
        assert received[f"{name}_low"] < received[name] < received[f"{name}_high"]
    # By hand: the deviation of a mean of 12 classes with 10 pairs each.
    task = RetrievalTask(rows, labels)
    accepted, _ = accepted_by_class(task, [received["threshold_at_far_0.1"]])
    deviation = accepted[0].std() / 10 / np.sqrt(12)
    width = received["tar_at_far_0.1_high"] - received["tar_at_far_0.1_low"]
    assert width == pytest.approx(2 * 1.96 * deviation, rel=0.15)


def test_rates_that_nearly_agree_have_names_of_their_own():
    labels = np.repeat(np.arange(12), 5)
    rows = np.random.default_rng(2).normal(size=(60, 6))
    received = verification_metrics(rows, labels, [0.1234567, 0.1234568, 1 / 128])
    names = [name for name in received if name.startswith("threshold")]
    assert names == [
        "threshold_at_far_0.1234567",
        "threshold_at_far_0.1234568",
        "threshold_at_far_0.0078125",
    ]


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ([0.5, np.nan], "must not be NaN. Received: NaN at place 1"),
        (0.5, r"must be numbers \[T\]. Received: 0.5"),
        ([[0.5]], r"must be numbers \[T\]"),
        (["high"], r"must be numbers \[T\]"),
    ],
)
def test_wrong_thresholds_are_named(thresholds, message):
    with pytest.raises(ValueError, match=f"`thresholds` {message}"):
        accepted_by_class(RetrievalTask(np.eye(4), [0, 0, 1, 1]), thresholds)


@pytest.mark.parametrize("rates", [0.5, [[0.5]], "0.5"])
def test_wrong_rates_are_named(rates):
    with pytest.raises(ValueError, match=r"`false_accept_rates` must be numbers"):
        true_accept_rates(fixed_counts(), rates)


@pytest.mark.parametrize("classes", [1, 50])
def test_memory_of_pairs_is_what_the_docstring_says(classes):
    rows = np.random.default_rng(0).normal(size=(3000, 4)).astype("float32")
    labels = np.arange(3000) % classes
    tracemalloc.start()
    pair_counts(rows, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20 * (260 if classes == 1 else 200)


def test_interval_is_left_out_where_one_class_alone_has_pairs():
    received = verification_metrics(np.eye(5), [0, 0, 1, 2, 3], [0.5])
    assert received == {
        "pair_auc": 0.5,
        "tar_at_far_0.5": 0.0,
        "threshold_at_far_0.5": STEP,
        "positive_pairs": 1,
        "negative_pairs": 9,
    }


def test_counts_that_are_known_give_the_same_metrics():
    generator, rows, labels = drawn(9)
    options = chosen(["is_query", "groups"], generator)
    counts = pair_counts(rows, labels, **options)
    expected = verification_metrics(rows, labels, **options)
    assert verification_metrics(rows, labels, counts=counts, **options) == expected
    assert verification_metrics(RetrievalTask(rows, labels, **options)) == expected


def test_equal_rows_say_nothing():
    rows = np.tile(np.random.default_rng(0).normal(size=512), (90, 1))
    counts = pair_counts(rows, np.arange(90) % 3)
    assert roc_auc(counts) == 0.5
    assert counts.scores.tolist() == [1]


def test_zero_row_has_similarity_0_and_length_does_not_matter():
    rows = np.array([[0.0, 0.0], [1e-30, 0.0], [1e30, 0.0]])
    counts = pair_counts(rows, [0, 1, 1])
    assert counts.scores.tolist() == [0, 1]
    assert counts.positives.tolist() == [0, 1]
    assert counts.negatives.tolist() == [2, 0]


def test_roles_of_everyone_count_each_pair_from_both_sides():
    _, rows, labels = drawn(3)
    once = pair_counts(rows, labels)
    twice = pair_counts(rows, labels, is_query=np.ones(40, bool))
    np.testing.assert_array_equal(twice.scores, once.scores)
    np.testing.assert_array_equal(twice.positives, 2 * once.positives)
    np.testing.assert_array_equal(twice.negatives, 2 * once.negatives)


def test_nothing_is_counted_where_there_is_no_pair():
    for options in ({}, {"is_query": np.zeros(1, bool)}, {"groups": [0]}):
        counts = pair_counts([[1.0, 0.0]], [0], **options)
        assert len(counts.scores) == 0
        with pytest.raises(ValueError, match="no positive pair"):
            roc_auc(counts)
    empty = pair_counts(np.zeros((0, 3)), np.zeros(0, int))
    assert len(empty.scores) == 0
    task = RetrievalTask(np.zeros((0, 3)), np.zeros(0, int))
    accepted, pairs = accepted_by_class(task, [0.5])
    assert accepted.shape == (1, 0)
    assert pairs.shape == (0,)


@refusals(
    ("labels", [0, 1], "must have the shape [4]"),
    ("labels", [0.0, 0, 1, 1], "must hold integers or strings"),
    ("embeddings", np.full((4, 2), np.inf), "must be finite in float32"),
    ("is_query", [0, 1, 1, 1], "must be a bool array of shape [4]"),
    ("is_gallery", np.ones(3, bool), "must be a bool array of shape [4]"),
    ("groups", [0], "must have the shape [4]"),
    ("counts", fixed_counts(), "must be of the same pairs. Received: 10 positive"),
    ("false_accept_rates", [0.1], "4 cannot measure less. Received: 0.1"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"embeddings": np.eye(4), "labels": [0, 0, 1, 1]}
    refuses(
        verification_metrics, argument=argument, value=value, rule=rule, valid=valid
    )


@pytest.mark.parametrize(
    ("labels", "missing"), [([0, 0, 0, 0], "negative"), ([0, 1, 2, 3], "positive")]
)
def test_both_kinds_of_pair_are_needed(labels, missing):
    with pytest.raises(ValueError, match=f"Received: no {missing} pair"):
        verification_metrics(np.eye(4), labels)


def test_inputs_stay_as_they_are():
    rows = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")
    before = rows.copy()
    verification_metrics(rows, np.arange(30) % 3)
    np.testing.assert_array_equal(rows, before)


def test_few_pairs_are_verified_as_far_as_they_can_be():
    rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    metrics = verification_metrics(rows, [0, 0, 1, 1])  # no rate can be measured
    assert metrics == {"pair_auc": 1.0, "positive_pairs": 2, "negative_pairs": 4}
