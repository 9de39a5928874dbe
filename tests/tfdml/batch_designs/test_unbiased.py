"""Importance weights, exactly: every batch of a small design with its probability."""

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from tests.support.enumerated_draws import outcomes
from tfdml.batch_designs import GroupBatches, PairBatches
from tfdml.losses import BalancedContrastiveLoss, WeightedContrastiveLoss

pytestmark = pytest.mark.backend

LABELS = np.array([4, 4, 4, 7, 7, 9, 9, 9, 8])  # the last class has one image
SIZES = {4: 3, 7: 2, 9: 3}
USED = range(8)
EMBEDDINGS = np.random.default_rng(0).normal(size=(9, 3))
UNIT = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
MARGIN = 1.5
ODDS = [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]


def value(i, j, balance=None):
    """The contrastive loss of an ordered pair (Eqs. 4 and 16)."""
    distance = np.sqrt(((UNIT[i] - UNIT[j]) ** 2).sum())
    if LABELS[i] == LABELS[j]:
        return distance**2
    a, b = SIZES[LABELS[i]], SIZES[LABELS[j]]
    eta = 1 if balance is None else balance / (len(SIZES) - 1) * (a - 1) / b
    return eta * max(0, MARGIN - distance) ** 2


def mean_of_all(balance=None):
    """Mean over all ordered pairs of the images that the design can draw."""
    pairs = [(i, j) for i in USED for j in USED if i != j]
    return sum(value(i, j, balance) for i, j in pairs) / len(pairs)


def group_design(m=2, n=2):
    return GroupBatches(LABELS, m, n, small_classes="leave_out")


class OnePair(PairBatches):
    """A pass of one batch: all of them are drawn alike."""

    def __len__(self):
        return 1


def pair_outcomes(p):
    """All single pairs of the p-random design with their probabilities."""
    design = OnePair(LABELS, 1, positive_probability=float(p))
    intervals = {float(p) / 2: p, (1 + float(p)) / 2: 1 - p}
    found = defaultdict(Fraction)
    for drawn, probability in outcomes(design.draw_pass, intervals):
        found[tuple(drawn.ravel().tolist())] += probability
    return design, found


def group_outcomes(m=2, n=2):
    """All batches of the group design with their probabilities."""
    found = defaultdict(Fraction)
    for drawn, probability in outcomes(group_design(m, n).draw_pass):
        for batch in drawn:
            found[tuple(batch.tolist())] += probability / len(drawn)
    return found


def weight(weights, i, j):
    """W of a pair from what `importance_weights` returns."""
    positive, negative = weights
    c, d = (sorted({*LABELS}).index(LABELS[k]) for k in (i, j))
    return positive[c] if c == d else negative[c] * negative[d]


def test_group_design_draws_each_pair_with_the_chance_of_equation_9():
    m, n = 2, 2
    found = group_outcomes(m, n)
    assert sum(found.values()) == 1
    chances = defaultdict(Fraction)
    for batch, probability in found.items():
        assert len(set(batch)) == m * n
        for a in range(m * n):
            for b in set(range(m * n)) - {a}:
                chances[batch[a], batch[b]] += probability / (m * n * (m * n - 1))
    size = {i: SIZES[LABELS[i]] for i in USED}
    for i in USED:
        for j in set(USED) - {i}:
            if LABELS[i] == LABELS[j]:
                expected = Fraction(m - 1, m * n - 1) / (3 * size[i] * (size[i] - 1))
            else:
                share = Fraction(m * (n - 1), m * n - 1)
                expected = share / (3 * 2 * size[i] * size[j])
            assert chances.pop((i, j)) == expected
    assert not chances


@pytest.mark.parametrize("p", ODDS)
def test_p_random_design_draws_each_pair_with_the_chance_of_equation_8(p):
    _, found = pair_outcomes(p)
    assert sum(found.values()) == 1
    positive = sum(q for (i, j), q in found.items() if LABELS[i] == LABELS[j])
    assert positive == p
    size = {i: SIZES[LABELS[i]] for i in USED}
    for i in USED:
        for j in set(USED) - {i}:
            if LABELS[i] == LABELS[j]:
                expected = p / (3 * size[i] * (size[i] - 1))
            else:
                expected = (1 - p) / (3 * 2 * size[i] * size[j])
            assert found.pop((i, j)) == expected
    assert not found


@pytest.mark.parametrize("p", ODDS)
def test_weights_of_the_designs_are_the_inverse_of_their_chances(p):
    design, found = pair_outcomes(p)
    for (i, j), chance in found.items():
        expected = 1 / (8 * 7 * chance)
        assert weight(design.importance_weights(), i, j) == pytest.approx(
            float(expected), rel=1e-12
        )


def expected_loss(loss, found):
    """Expectation of a loss, over one call on all batches after another."""
    total = 0.0
    for batch, probability in found.items():
        rows = list(batch)
        total += float(probability) * float(loss(LABELS[rows], EMBEDDINGS[rows]))
    return total


COUNTS = {4: 3, 7: 2, 8: 1, 9: 3}


@pytest.mark.parametrize("balance", [None, 8.0])
def test_weighted_loss_of_the_group_design_is_unbiased(balance):
    options = {"margin": MARGIN, "dtype": "float64"}
    if balance is None:
        loss = WeightedContrastiveLoss(
            COUNTS, images_per_class=2, classes_per_batch=2, **options
        )
    else:
        loss = BalancedContrastiveLoss(
            COUNTS, images_per_class=2, classes_per_batch=2, balance=balance, **options
        )
    # Batches that differ in order alone have the same loss.
    found = defaultdict(Fraction)
    for batch, probability in group_outcomes().items():
        found[tuple(sorted(batch))] += probability
    full = mean_of_all(balance)
    error = expected_loss(loss, found) / full - 1
    print(f"group, {len(found)} batches, balance {balance}: {full} off by {error}")
    assert abs(error) < 1e-9
    plain = WeightedContrastiveLoss(COUNTS, margin=MARGIN, dtype="float64")
    assert abs(expected_loss(plain, found) / mean_of_all() - 1) > 0.05


@pytest.mark.parametrize("p", ODDS)
@pytest.mark.parametrize("balance", [None, 8.0])
def test_weighted_loss_of_the_p_random_design_is_unbiased(p, balance):
    options = {
        "positive_probability": float(p),
        "margin": MARGIN,
        "dtype": "float64",
    }
    if balance is None:
        loss = WeightedContrastiveLoss(COUNTS, **options)
    else:
        loss = BalancedContrastiveLoss(COUNTS, balance=balance, **options)
    _, found = pair_outcomes(p)
    full = mean_of_all(balance)
    error = expected_loss(loss, found) / full - 1
    print(f"p = {p}, {len(found)} pairs, balance {balance}: {full} off by {error}")
    assert abs(error) < 1e-12
    unweighted = sum(float(q) * value(*pair) for pair, q in found.items())
    assert abs(unweighted / mean_of_all() - 1) > 0.05


def test_repeated_images_have_no_importance_weights():
    with pytest.raises(ValueError, match=r"small_classes='leave_out'.*1 of class 8"):
        GroupBatches(LABELS, 2, 2).importance_weights()
