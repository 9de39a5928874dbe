"""Thresholds of a search against naive loops over queries and thresholds."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from tfdml.metrics import (
    Calibration,
    MatchScores,
    MetricLimits,
    RetrievalTask,
    calibrate,
    check_target,
    match_scores,
)


def naive_scores(rows, labels, queries, gallery, groups):
    """Each query's answer and its best negative, one pair after the other."""
    found = []
    for q in queries:
        best = negative = -math.inf
        right = positive = False
        for g in gallery:
            if groups[g] == groups[q]:
                continue
            lengths = np.linalg.norm(rows[q]) * np.linalg.norm(rows[g])
            cosine = rows[q] @ rows[g] / lengths if lengths else 0.0
            if cosine > best:
                best, right = cosine, labels[g] == labels[q]
            if labels[g] != labels[q]:
                negative = max(negative, cosine)
            else:
                positive = True
        found.append((best, right, positive, negative))
    return map(np.array, zip(*found, strict=True))


def clustered(seed, count=150, classes=5, spread=0.6):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    centers = generator.normal(size=(classes, 6))
    return centers[labels] + spread * generator.normal(size=(count, 6)), labels


@pytest.mark.parametrize("spread", [0.05, 2.0], ids=["tight classes", "mixed classes"])
@pytest.mark.parametrize("roles", [False, True], ids=["everyone", "roles"])
@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "groups"])
def test_scores_equal_the_definition(spread, roles, grouped):
    rows, labels = clustered(1, spread=spread)
    rows[7] = 0
    generator = np.random.default_rng(2)
    is_query = generator.random(150) < 0.5 if roles else np.ones(150, bool)
    is_gallery = generator.random(150) < 0.6 if roles else np.ones(150, bool)
    groups = generator.integers(0, 9, 150) if grouped else np.arange(150)
    given = {"is_query": is_query, "is_gallery": is_gallery} if roles else {}
    given |= {"groups": groups} if grouped else {}
    task = RetrievalTask(rows, labels, **given, limits=MetricLimits(excluded=50))
    received = match_scores(task)
    queries, gallery = np.flatnonzero(is_query), np.flatnonzero(is_gallery)
    best, right, positive, negative = naive_scores(
        rows, labels, queries, gallery, groups
    )
    np.testing.assert_array_equal(received.queries, queries)
    np.testing.assert_allclose(received.similarity, best, atol=1e-6)
    np.testing.assert_array_equal(received.is_positive, right)
    np.testing.assert_array_equal(received.has_positive, positive)
    np.testing.assert_allclose(received.negative_similarity, negative, atol=1e-6)
    assert received.gallery == len(gallery)


@pytest.mark.parametrize("threshold", [-1.0, 0.3, 0.9, 1.1])
def test_rates_at_a_threshold_are_counted(threshold):
    rows, labels = clustered(4, classes=40)
    everyone = np.arange(len(rows))
    scores = match_scores(rows, labels)
    best, right, positive, negative = naive_scores(
        rows, labels, everyone, everyone, everyone
    )
    answered = sum(best >= threshold)
    correct = sum((best >= threshold) & right)
    expected = {
        "queries": len(rows),
        "queries_with_positive": sum(positive),
        "answered": answered,
        "correct": correct,
        "false_positives": sum(negative >= threshold),
        "recall": correct / sum(positive),
        "false_positive_rate": sum(negative >= threshold) / len(rows),
    }
    if answered:
        expected["precision"] = correct / answered
    received = scores.rates_at(threshold)
    assert received == pytest.approx(expected)
    assert json.loads(json.dumps(received)) == received


@pytest.mark.parametrize("first", [1, 2, 500])
def test_number_of_first_neighbors_changes_nothing(first):
    rows, labels = clustered(3)
    expected = match_scores(rows, labels)
    task = RetrievalTask(rows, labels, limits=MetricLimits(first=first))
    received = match_scores(task)
    for field in dataclasses.fields(MatchScores):
        np.testing.assert_array_equal(
            getattr(received, field.name), getattr(expected, field.name)
        )


def test_similarity_is_the_cosine_rounded_once():
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(40, 48)).astype("float32")
    scores = match_scores(rows, np.arange(40) % 3)
    exact = rows.astype("float64")
    products = exact @ exact.T
    lengths = np.sqrt(np.diag(products))
    cosines = products / lengths / lengths[:, None]
    np.fill_diagonal(cosines, -1)
    assert scores.similarity.tolist() == cosines.max(axis=1).astype("float32").tolist()


def test_scores_compare_as_objects():
    rows, labels = clustered(3)
    scores = match_scores(rows, labels)
    assert scores == scores
    assert scores != match_scores(rows, labels)


def test_query_that_is_compared_with_nothing_is_never_answered():
    rows, clips = np.eye(5)[[0, 0, 1, 0, 1]], ["a", "a", "a", "b", "b"]
    is_gallery = np.array([True, True, True, False, False])
    scores = match_scores(rows, [0, 0, 1, 0, 1], is_gallery=is_gallery, groups=clips)
    assert scores.similarity.tolist() == [-np.inf] * 3 + [1, 1]
    assert scores.negative_similarity.tolist() == [-np.inf] * 3 + [0, 0]
    assert scores.is_positive.tolist() == [False] * 3 + [True] * 2
    assert scores.has_positive.tolist() == [False] * 3 + [True] * 2


def test_duplicates_are_found_and_ties_come_in_order():
    rows, labels = [[1.0, 0.0]] * 3 + [[0.0, 1.0]], ["b", "a", "a", "b"]
    scores = match_scores(rows, labels)
    assert scores.similarity.tolist() == [1, 1, 1, 0]
    assert scores.is_positive.tolist() == [False, False, False, True]


LAST_TWO = np.array([False, False, True, True])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": [0, 1, 2, 3]},
            "`labels` must hold some label twice.*4 items, 4 queries, 4 in the gallery",
        ),
        (
            {"is_query": np.array([1, 1, 0, 0]) > 0, "is_gallery": LAST_TWO},
            "`is_gallery` must hold an item of a query's class.*2 queries, 2 in the",
        ),
        (
            {"groups": ["a", "a", "b", "b"]},
            "`groups` must leave a query some item of its class: 4 queries have one in "
            "their own group alone",
        ),
        ({"labels": [0, 0, 0, 0]}, "`labels` must hold two classes or more"),
        (
            {"is_query": ~LAST_TWO, "is_gallery": ~LAST_TWO},
            "must leave a query an item of another class.*2 queries, 2 in the gall",
        ),
        ({"labels": [0, 0, 1]}, r"`labels` must have the shape \[4\]"),
        ({"labels": [0.5, 0, 1, 1]}, "`labels` must hold integers or strings"),
        ({"embeddings": np.full((4, 2), np.nan)}, "`embeddings` must be finite"),
        ({"is_query": [1, 1, 1, 1]}, r"`is_query` must be a bool array of shape \[4\]"),
        ({"is_query": np.zeros(4, bool)}, "`is_query` must name a query.*4 items"),
        ({"is_gallery": np.zeros(4, bool)}, "`is_gallery` must name an item.*0 in the"),
        ({"groups": [0, 1]}, r"`groups` must have the shape \[4\]"),
        (
            {"embeddings": np.zeros((0, 2)), "labels": []},
            "`embeddings` must hold items. Received: none",
        ),
    ],
    ids=str,
)
def test_wrong_items_are_named(changes, message):
    arguments = {"embeddings": np.eye(4)[:, :2], "labels": [0, 0, 1, 1]} | changes
    with pytest.raises(ValueError, match=message):
        match_scores(**arguments)


def scores_of(similarity, is_positive, negatives=None, has_positive=None):
    similarity = np.array(similarity, "float32")
    is_positive = np.array(is_positive, bool)
    return MatchScores(
        queries=np.arange(len(is_positive)),
        similarity=similarity,
        is_positive=is_positive,
        has_positive=np.ones(len(is_positive), bool)
        if has_positive is None
        else has_positive,
        negative_similarity=np.array(
            np.where(is_positive, -1, similarity) if negatives is None else negatives,
            "float32",
        ),
        gallery=len(is_positive),
    )


def rates_at(scores, threshold):
    answers = [s >= threshold for s in scores.similarity.tolist()]
    correct = sum(a and r for a, r in zip(answers, scores.is_positive, strict=True))
    false = sum(n >= threshold for n in scores.negative_similarity.tolist())
    answered = sum(answers)
    return (
        answered,
        correct / answered if answered else math.nan,
        correct / scores.has_positive.sum(),
        false / len(answers),
    )


def random_scores(seed, count=200):
    """Coarse similarities, so that many tie; positives are higher on the whole."""
    generator = np.random.default_rng(seed)
    right = generator.random(count) < 0.7
    similarity = np.round(generator.normal(0.4 + 0.2 * right, 0.2).clip(-1, 1), 2)
    negatives = np.where(right, similarity - 0.1, similarity)
    return scores_of(
        similarity, right, negatives, right | (generator.random(count) < 0.5)
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wanted", [0.75, 0.85])
def test_precision_is_reached_with_the_most_answers(seed, wanted):
    scores = random_scores(seed)
    found = calibrate(scores, precision=wanted, least_answers=10)
    answered, precision, recall, false = rates_at(scores, found.threshold)
    assert (found.answered, found.precision) == (answered, pytest.approx(precision))
    assert found.recall == pytest.approx(recall)
    assert found.false_positive_rate == pytest.approx(false)
    assert found.precision >= wanted
    for threshold in np.unique(scores.similarity).tolist():
        other, precision, _, _ = rates_at(scores, threshold)
        assert other <= answered or precision < wanted


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wanted", [0.01, 0.1, 0.5])
def test_false_positive_rate_is_reached_at_the_lowest_threshold(seed, wanted):
    scores = random_scores(seed)
    found = calibrate(scores, false_positive_rate=wanted)
    answered, precision, recall, false = rates_at(scores, found.threshold)
    assert (found.answered, found.false_positive_rate) == (answered, false)
    assert (found.precision, found.recall) == pytest.approx((precision, recall))
    assert false <= wanted
    lower = [t for t in scores.negative_similarity.tolist() if t < found.threshold]
    assert rates_at(scores, max(lower))[3] > wanted


def test_threshold_lies_midway_between_accepted_and_refused():
    scores = scores_of([0.9, 0.8, 0.5, 0.25], [1, 1, 1, 0])
    found = calibrate(scores, precision=1.0, least_answers=2)
    assert found.threshold == 0.375
    assert found.answered == 3
    # The best negatives are 0.25 and three times -1.
    found = calibrate(scores, false_positive_rate=0.25, least_answers=2)
    assert found.threshold == pytest.approx((-1 + 0.25) / 2)


def test_neighboring_floats_are_told_apart():
    refused = np.float32(0.5)  # to which float32 would round what lies between
    accepted = np.nextafter(refused, np.float32(1))
    scores = scores_of([accepted, accepted, refused], [1, 1, 0])
    found = calibrate(scores, precision=1.0, least_answers=2)
    assert (found.answered, found.false_positive_rate) == (2, 0)
    assert found.is_match(float(accepted))
    assert not found.is_match(float(refused))


def test_precision_that_falls_and_rises_again_is_followed_to_its_last_rise():
    right = [1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    scores = scores_of(np.linspace(0.9, 0.35, 12), right)
    found = calibrate(scores, precision=0.9, least_answers=2)
    assert (found.answered, found.precision) == (10, 0.9)


def test_few_answers_that_happen_to_be_correct_do_not_count():
    scores = scores_of(np.linspace(0.9, 0.1, 40), [1] * 5 + [1, 0] * 17 + [0])
    with pytest.raises(ValueError, match=r"`precision` must be at most 0\.6, the best"):
        calibrate(scores, precision=0.9)
    assert calibrate(scores, precision=0.9, least_answers=5).answered >= 5


def test_best_precision_that_the_error_names_can_be_reached():
    scores = scores_of(np.linspace(0.9, 0.1, 40), [1, 1, 0, 1] * 10)
    with pytest.raises(ValueError, match=r"0\.766.*\(30 of 40") as error:
        calibrate(scores, precision=0.99)
    best = float(str(error.value).split("at most ")[1].split(", the")[0])
    assert calibrate(scores, precision=best).precision == 23 / 30


def test_where_every_answer_is_good_enough_every_query_is_answered():
    scores = scores_of(np.linspace(0.9, 0.125, 40), [1] * 39 + [0])
    found = calibrate(scores, precision=0.95)
    assert (found.answered, found.threshold) == (40, 0.125)


def test_answers_to_queries_without_a_positive_cost_precision_but_no_recall():
    scores = scores_of([0.9, 0.8, 0.7], [1, 1, 0], has_positive=np.array([1, 1, 0]) > 0)
    found = calibrate(scores, precision=0.5, least_answers=3)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == 1


def test_whole_way_from_embeddings_holds_on_other_classes():
    """A rate chosen on some classes is about the rate of others of the same kind."""
    generator = np.random.default_rng(0)

    def draw():
        labels = np.repeat(np.arange(200), 5)
        centers = generator.normal(size=(200, 8))
        return centers[labels] + 0.35 * generator.normal(size=(1000, 8)), labels

    for target in ({"precision": 0.97}, {"false_positive_rate": 0.05}):
        found = calibrate(match_scores(*draw()), **target)
        _, precision, _, false = rates_at(match_scores(*draw()), found.threshold)
        assert found.precision == pytest.approx(precision, abs=0.02)
        assert found.false_positive_rate == pytest.approx(false, abs=0.02)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({}, "Either `precision` or `false_positive_rate` must be given"),
        ({"precision": 0.9, "false_positive_rate": 0.1}, "Either `precision` or"),
        ({"precision": 0}, "`precision` must be above 0 and at most 1"),
        ({"precision": math.nan}, "`precision` must be above 0 and at most 1"),
        ({"precision": True}, "`precision` must be above 0 and at most 1"),
        ({"false_positive_rate": 1}, "`false_positive_rate` must be above 0 and below"),
        ({"false_positive_rate": 0.02}, r"at least 1 / queries: 40 queries cannot"),
        ({"precision": 0.9, "least_answers": 0}, "`least_answers` must be a whole"),
        ({"precision": 0.9, "least_answers": 41}, "at least 41 queries. Received: 40"),
        ({"false_positive_rate": 0.1}, "the lowest with any correct answer is 0.125"),
    ],
    ids=str,
)
def test_wrong_targets_are_named(targets, message):
    negatives = [0.9] * 5 + [0.1] * 35
    scores = scores_of(np.full(40, 0.9), [1] * 36 + [0] * 4, negatives)
    with pytest.raises(ValueError, match=message):
        calibrate(scores, **targets)


def test_search_that_is_never_correct_cannot_be_calibrated():
    scores = scores_of(np.linspace(0.9, 0.1, 40), [0] * 40)
    with pytest.raises(ValueError, match="no query finds its class first"):
        calibrate(scores, false_positive_rate=0.1)


def test_queries_compared_with_nothing_are_no_answers():
    scores = scores_of([0.5] * 20 + [-np.inf] * 20, [1] * 20 + [0] * 20)
    with pytest.raises(ValueError, match=r"at least 30 answers. Received: 20"):
        calibrate(scores, precision=0.9)
    found = calibrate(scores, false_positive_rate=0.25, least_answers=20)
    assert (found.answered, found.false_positive_rate) == (20, 0)


@pytest.mark.parametrize("number", [np.float32, np.float64, Fraction])
def test_target_may_be_any_real_number(number):
    assert check_target(number(0.75), None) == ("precision", 0.75)
    name, value = check_target(None, number(0.25))
    assert (name, value, type(value)) == ("false_positive_rate", 0.25, float)


KNOWN = calibrate(random_scores(0), precision=0.8)


def test_calibration_comes_back_from_json_unchanged(tmp_path):
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(KNOWN.to_json()))
    assert Calibration.read(file) == KNOWN
    assert KNOWN.to_json()["metric"] == "cosine"


def test_calibration_takes_the_numbers_of_numpy_and_writes_plain_ones():
    values = {
        name: np.float64(value)
        if isinstance(value, float)
        else (np.int64(value) if isinstance(value, int) else value)
        for name, value in KNOWN.to_json().items()
    }
    received = Calibration(**values)
    assert received == KNOWN
    assert json.dumps(received.to_json()) == json.dumps(KNOWN.to_json())
    low = Calibration(**(KNOWN.to_json() | {"threshold": np.float32(0.5)}))
    assert json.loads(json.dumps(low.to_json()))["threshold"] == 0.5
    for broken in (np.float32(np.nan), np.True_):
        with pytest.raises(ValueError, match="`threshold` of a calibration must be"):
            Calibration(**(KNOWN.to_json() | {"threshold": broken}))


def test_sentence_says_threshold_rates_and_how_sure():
    text = str(KNOWN)
    for part in (
        f"similarity of {KNOWN.threshold:.4f}",
        f"precision {KNOWN.precision:.3f} ({KNOWN.low:.3f} to {KNOWN.high:.3f}",
        "wanted 0.8",
        f"false positive rate {KNOWN.false_positive_rate:.3f}",
        f"{KNOWN.answered} of 200 queries",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": math.nan}, "`threshold` of a calibration must be a number"),
        (
            {"threshold": 2},
            "`threshold` of a calibration must be a number from -1 to 1",
        ),
        ({"threshold": "0.5"}, "`threshold`.*Received: '0.5'"),
        ({"precision": -0.1}, "`precision` of a calibration must be a number from 0"),
        ({"recall": True}, "`recall`"),
        ({"target": "recall"}, "`target` of a calibration must be 'precision' or"),
        ({"metric": "dot_product"}, "`metric` of a calibration must be 'cosine'"),
        ({"queries": 2.5}, "`queries` of a calibration must be a whole number"),
        ({"gallery": 0}, "`gallery`"),
        ({"extra": 1}, "A calibration must not have the value `extra`"),
        ({"low": None}, "`low`"),
    ],
    ids=str,
)
def test_damaged_file_is_refused_and_the_value_named(change, message, tmp_path):
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(KNOWN.to_json() | change))
    with pytest.raises(ValueError, match=f"calibration.json holds no.*{message}"):
        Calibration.read(file)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Calibration)])
def test_missing_value_is_named(name):
    values = KNOWN.to_json()
    del values[name]
    with pytest.raises(ValueError, match=f"must have the value `{name}`"):
        Calibration.from_json(values)


@pytest.mark.parametrize("content", ["", "[]", "{", "null", "\udcff"])
def test_file_of_something_else_is_refused(content, tmp_path):
    file = tmp_path / "calibration.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"calibration\.json holds no calibration"):
        Calibration.read(file)
