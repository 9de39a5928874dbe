"""What is said of a threshold, on the numbers of a search."""

import numpy as np
import pytest

from tfdml.metrics import Calibration, MatchScores
from training.reports.text import evaluation_summary
from training.reports.threshold import (
    calibration_text,
    threshold_rows,
    threshold_warning,
)

SCORES = MatchScores(
    queries=np.arange(5),
    similarity=np.array([0.9, 0.8, 0.7, 0.6, 0.5], "float32"),
    is_positive=np.array([True, False, True, True, False]),
    has_positive=np.array([True, True, True, True, False]),
    negative_similarity=np.array([0.2, 0.8, 0.1, 0.3, 0.5], "float32"),
    gallery=5,
)


def rates(threshold):
    return {"gallery": SCORES.gallery, **SCORES.rates_at(threshold)}


def test_each_rate_is_said_with_what_it_is_a_share_of():
    assert dict(threshold_rows(rates(0.65))) == {
        "answered": "60.0% of the queries (3 of 5, in a gallery of 5)",
        "precision": "66.7% of the answers are correct",
        "recall": "50.0% of the queries with a positive are answered correctly",
        "false positive rate": "20.0% of the queries would be answered if their class "
        "were missing",
    }


def test_threshold_above_all_answers_nothing():
    rows = dict(threshold_rows(rates(0.95)))
    assert rows["answered"].startswith("0.0% of the queries (0 of 5")
    assert rows["precision"] == "none, because nothing is answered"


@pytest.mark.parametrize(("threshold", "warns"), [(0.65, False), (0.75, True)])
def test_warns_where_most_queries_with_a_positive_go_without(threshold, warns):
    warning = threshold_warning(rates(threshold))
    assert bool(warning) == warns
    if warns:
        assert warning.startswith("Only 25.0% of the queries with a positive are")
        assert "lower --precision" in warning


@pytest.mark.parametrize(("recall", "warns"), [(0.16, True), (0.5, False)])
def test_calibration_says_what_its_threshold_means(recall, warns):
    found = Calibration(
        0.938, "precision", 0.8, 0.81, recall, 0.034, 0.73, 0.87, 654, 130, 3732
    )
    text = calibration_text(found)
    assert "A match is a similarity of 0.9380 or more." in text
    assert "19.9% of the queries (130 of 654, in a gallery of 3,732)" in text
    assert (
        "81.0% of the answers are correct (73.0% to 87.0% at 95% confidence; "
        "wanted 80%)" in text
    )
    assert ("warning: Only 16.0%" in text) == warns


def test_calibration_by_false_positives_gives_the_interval_of_these():
    found = Calibration(
        0.9, "false_positive_rate", 0.05, 0.8, 0.7, 0.04, 0.02, 0.06, 200, 150, 200
    )
    (line,) = [x for x in calibration_text(found).splitlines() if "wanted" in x]
    assert line.lstrip().startswith("false positive rate")
    assert "(2.0% to 6.0% at 95% confidence; wanted 5%)" in line


def test_summary_of_an_evaluation_says_what_the_threshold_of_the_run_means():
    results = {
        "queries": 5,
        "gallery": 5,
        "metrics": {},
        "intervals": {},
        "queries_without_positive": 1,
        "classes_trained_on": 0,
    }
    assert "threshold" not in evaluation_summary(results)
    results["at_threshold"] = {"threshold": 0.75, **rates(0.75)}
    text = evaluation_summary(results)
    assert "At the run's threshold, a similarity of 0.7500:" in text
    assert "40.0% of the queries (2 of 5, in a gallery of 5)" in text
    assert "warning: Only 25.0%" in text
