"""Intervals against all draws listed, and against the formula of the variance."""

import itertools
import math

import numpy as np
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.metrics import bootstrap_interval, paired_difference
from tfdml.metrics._intervals import (
    _resampled_means,
    ratio_interval,
    wilson_interval,
)


def test_interval_equals_the_percentiles_of_all_draws():
    values, groups = np.array([0.0, 1.0, 1.0, 5.0, 0.5, 0.5]), [0, 0, 1, 1, 1, 2]
    sums, counts = [1, 6.5, 0.5], [2, 3, 1]
    ratios = sorted(
        sum(sums[c] for c in draw) / sum(counts[c] for c in draw)
        for draw in itertools.product(range(3), repeat=3)
    )
    # Of the 27 draws these percentiles lie well inside runs of equal ratios or steps.
    for confidence in (0.9, 0.5):
        outside = (1 - confidence) / 2
        received = bootstrap_interval(
            values, groups, confidence=confidence, resamples=50_000
        )
        expected = ratios[int(27 * outside)], ratios[int(27 * (1 - outside))]
        assert received == pytest.approx(expected, abs=1e-9)


def test_interval_has_the_width_of_the_variance_between_classes():
    generator = np.random.default_rng(4)
    sizes = generator.integers(2, 13, 300)
    groups = np.repeat(np.arange(300), sizes)
    values = generator.normal(size=300)[groups] + generator.normal(size=len(groups))
    # Delta method: the variance of a ratio of sums over classes.
    mean = values.mean()
    parts = [(values[groups == c] - mean).sum() for c in range(300)]
    deviation = np.sqrt(np.square(parts).sum()) / len(values)
    low, high = bootstrap_interval(values, groups, resamples=20_000)
    assert (low + high) / 2 == pytest.approx(mean, abs=0.2 * deviation)
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.05)
    # Single queries, drawn one by one, would look far more certain.
    alone = bootstrap_interval(values, np.arange(len(values)))
    assert alone[1] - alone[0] < 0.7 * (high - low)


def test_difference_is_others_less_values():
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(50), 4)
    values = generator.normal(size=50)[groups]
    others = values + 0.02 + 0.01 * generator.normal(size=200)
    found = paired_difference(values, others, groups)
    assert found.difference == pytest.approx(others.mean() - values.mean())
    assert 0 < found.low < found.difference < found.high < 0.03
    assert found.is_significant
    back = paired_difference(others, values, groups)
    assert back.high < 0
    assert back.is_significant
    # The intervals of the two means themselves overlap.
    assert bootstrap_interval(values, groups)[1] > bootstrap_interval(others, groups)[0]


def test_equal_models_do_not_differ():
    values = np.random.default_rng(0).random(40)
    found = paired_difference(values, values, np.arange(40) // 4)
    assert found == (0, 0, 0, False)
    # In each class the gains cancel, save for their rounding.
    gains = np.tile([0.1, 0.2, -0.3], 10)
    found = paired_difference(np.zeros(30), gains, np.arange(30) // 3)
    assert not found.is_significant


def test_chance_is_not_significant():
    generator = np.random.default_rng(1)
    values, others = generator.random((2, 200))
    found = paired_difference(values, others, np.arange(200) // 5)
    assert found.low < 0 < found.high
    assert not found.is_significant


def test_seeds_that_scatter_make_a_difference_uncertain():
    generator = np.random.default_rng(2)
    groups = np.repeat(np.arange(100), 3)
    values = generator.random(300)
    # Two runs, 0.2 above and 0.14 below: by class alone their mean is surely higher.
    others = np.stack([values + 0.2, values - 0.14])
    found = paired_difference(np.stack([values, values]), others, groups)
    assert found.difference == pytest.approx(0.03)
    assert found.low == pytest.approx(-0.14, abs=0.01)  # the worse run drawn twice
    assert found.high == pytest.approx(0.2, abs=0.01)
    assert not found.is_significant
    assert paired_difference(values, others.mean(axis=0), groups).is_significant


def test_ratio_leaves_out_classes_without_values():
    received = ratio_interval([3, 0, 1], [4, 0, 2], seed=3)
    assert received == ratio_interval([3, 1], [4, 2], seed=3)
    assert received == (0.5, 0.75)


def test_seed_decides_and_blocks_do_not():
    values = np.random.default_rng(1).random(90)
    groups = [f"class {i // 3:02}" for i in range(90)]
    received = bootstrap_interval(values, groups, seed=1)
    assert received == bootstrap_interval(values, groups, seed=1)
    assert received != bootstrap_interval(values, groups, seed=2)
    sums, counts = values.reshape(30, 3).sum(axis=1)[np.newaxis], np.full(30, 3)
    whole, blocks = (
        np.quantile(
            _resampled_means(sums, counts, resamples=2000, seed=1, at_once=at_once),
            [0.025, 0.975],
        )
        for at_once in (10**6, 70)
    )
    assert tuple(whole) == pytest.approx(received)
    assert tuple(blocks) == pytest.approx(received, abs=0.01)


@refusals(
    ("groups", [1, 2], "must have the shape [3]"),
    ("groups", [0.5, 1, 2], "must hold integers or strings"),
    ("values", [0, np.nan, 1], "must be finite. Received: nan at 1"),
    ("values", [[1], [2], [3]], "must be real numbers [Q]"),
    ("confidence", 95, "must be above 0 and below 1"),
    ("confidence", 0, "must be above 0 and below 1"),
    ("resamples", 0, "must be a whole number of at least 1"),
    ("seed", -1, "must be a whole number of at least 0"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"values": [1, 0, 1], "groups": [0, 0, 1]}
    refuses(bootstrap_interval, argument=argument, value=value, rule=rule, valid=valid)


@pytest.mark.parametrize(("values", "groups"), [([1, 0, 1], [1, 1, 1]), ([], [])])
def test_interval_needs_two_classes(values, groups):
    with pytest.raises(ValueError, match="at least two classes"):
        bootstrap_interval(values, groups)


def test_wrong_others_and_counts_are_named():
    with pytest.raises(ValueError, match="`others` must be finite"):
        paired_difference([0, 1], [0, np.inf], [0, 1])
    with pytest.raises(ValueError, match=r"`groups` must have the shape \[3\]"):
        paired_difference([0, 1], [0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match="`counts` must hold integers"):
        ratio_interval([1, 2], [1.5, 2])
    with pytest.raises(ValueError, match="must be finite and have the same shape"):
        ratio_interval([1, 2], [1, 2, 3])


# Of shares


@pytest.mark.parametrize("trials", [1, 10, 400])
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 1])
def test_interval_ends_where_the_score_test_just_rejects(trials, share):
    """|p - end| = 1.96 standard errors of the end: what Wilson's interval is."""
    successes = int(share * trials)
    p = successes / trials
    for end in wilson_interval(successes, trials):
        error = math.sqrt(end * (1 - end) / trials)
        assert abs(p - end) == pytest.approx(1.959963985 * error, abs=1e-7)


def test_interval_of_more_than_all_is_refused():
    with pytest.raises(ValueError, match="`successes` must be at most `trials`"):
        wilson_interval(3, 2)
