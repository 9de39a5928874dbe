"""Recall@k, PNP, SupAP and ROADMAP against their definitions, item by item."""

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, slow_on_jax, value_and_gradient
from tests.support.loss_entry import rebuilt
from tests.support.ranked_batches import (
    apart,
    batch,
    check_gradient,
    check_values,
    sets_of,
    sigmoid,
    similarities,
    weighted,
)
from tfdml.losses import PNPLoss, RecallAtKLoss, ROADMAPLoss, SupAPLoss

pytestmark = [pytest.mark.backend, *slow_on_jax]

COMPILED = {"tensorflow": [False, True], "jax": [True], "torch": [False]}[BACKEND]


def naive_recall(labels, s, ks, temperature, rank_temperature):
    """1 - the mean of the smooth recalls."""
    values = np.zeros(len(labels))
    for a in range(len(labels)):
        right, wrong = sets_of(labels, a)
        for k in ks if right else ():
            hits = 0.0
            for i in right:
                rank = 1 + sum(
                    sigmoid(s[a, j] - s[a, i], temperature)
                    for j in [*right, *wrong]
                    if j != i
                )
                hits += sigmoid(k - rank, rank_temperature)
            values[a] += (1 - min(hits, k) / min(k, len(right))) / len(ks)
    return values


def naive_pnp(labels, s, cost, temperature):
    """The mean cost of the negatives before each positive."""
    values = np.zeros(len(labels))
    for a in range(len(labels)):
        right, wrong = sets_of(labels, a)
        for i in right:
            before = sum(sigmoid(s[a, n] - s[a, i], temperature) for n in wrong)
            values[a] += cost(before) / len(right)
    return values


def steep(x, temperature, slope, delta, jump):
    """H of SupAP."""
    if x <= 0:
        return sigmoid(x, temperature)
    if x <= delta:
        return sigmoid(x, temperature) + jump
    return sigmoid(delta, temperature) + jump + slope * (x - delta)


def naive_sup_ap(labels, s, *shape):
    """1 - SupAP of each anchor with positives, positive by positive."""
    values = np.zeros(len(labels))
    for a in range(len(labels)):
        right, wrong = sets_of(labels, a)
        for i in right:
            before = 1 + sum(s[a, j] >= s[a, i] for j in right if j != i)
            lost = sum(steep(s[a, n] - s[a, i], *shape) for n in wrong)
            values[a] += (1 - before / (before + lost)) / len(right)
    return values


def naive_calibration(labels, s, least, most):
    """The share of each anchor in the two means, times the number of anchors."""
    costs = np.zeros((2, len(labels), len(labels)))
    for a in range(len(labels)):
        right, wrong = sets_of(labels, a)
        costs[0, a, right] = np.maximum(0, least - s[a, right])
        costs[1, a, wrong] = np.maximum(0, s[a, wrong] - most)
    counts = np.maximum((costs > 0).sum(axis=(1, 2)), 1)
    return len(labels) * (costs.sum(axis=2) / counts[:, None]).sum(axis=0)


PNP = {
    "O": lambda r: r,
    "I_u": lambda r: (1 + r) * np.log(1 + r),
    "I_b": lambda r: (0.7 * r - np.log(1 + 0.7 * r)) / 0.7**2,
    "D_s": lambda r: np.log(1 + r),
    "D_q": lambda r: 1 - (1 + r) ** -3.0,
}
SHAPE = {"slope": 3.0, "delta": 0.3, "jump": 0.5}
FLAT = {"slope": 2.0, "delta": 0.1, "jump": 0.0}
LOSSES = {
    "recall": (
        RecallAtKLoss((1, 2, 4), temperature=0.2),
        lambda y, s: naive_recall(y, s, (1, 2, 4), 0.2, 1.0),
    ),
    "recall-1": (
        RecallAtKLoss([1], temperature=0.05, rank_temperature=0.5),
        lambda y, s: naive_recall(y, s, (1,), 0.05, 0.5),
    ),
    "recall-clipped": (
        RecallAtKLoss([1], temperature=0.5, rank_temperature=9.0),
        lambda y, s: naive_recall(y, s, (1,), 0.5, 9.0),
    ),
    **{
        f"pnp-{variant}": (
            PNPLoss(variant, temperature=0.2, power=3.0, bend=0.7),
            lambda y, s, cost=cost: naive_pnp(y, s, cost, 0.2),
        )
        for variant, cost in PNP.items()
    },
    "sup-ap": (
        SupAPLoss(0.1, **SHAPE),
        lambda y, s: naive_sup_ap(y, s, 0.1, *SHAPE.values()),
    ),
    "sup-ap-without-jump": (
        SupAPLoss(0.1, **FLAT),
        lambda y, s: naive_sup_ap(y, s, 0.1, *FLAT.values()),
    ),
}
SLOW = {"recall-1", "pnp-I_u", "pnp-I_b", "pnp-D_s", "sup-ap-without-jump"}
ON_JAX = {"recall", "sup-ap"}
all_losses = pytest.mark.parametrize(
    ("loss", "naive"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, case in LOSSES.items()
    ],
)


@all_losses
def test_values_are_those_of_the_definition(loss, naive):
    for seed in range(2):
        labels, embeddings = batch(seed)
        jumps = isinstance(loss, SupAPLoss)
        check_values(loss, naive, labels, apart(embeddings) if jumps else embeddings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "naive"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.jax] if name in ON_JAX else [])
        for name, case in LOSSES.items()
    ],
)
@pytest.mark.parametrize("compiled", COMPILED)
def test_gradients_are_the_slopes_of_the_definition(loss, naive, compiled):
    labels, embeddings = batch(7)
    definition = weighted(naive, labels)
    check_gradient(loss, definition, labels, apart(embeddings), compiled=compiled)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_roadmap_is_sup_ap_and_the_means_of_the_calibration(compiled):
    loss = ROADMAPLoss(0.1, **SHAPE, calibration_weight=0.6, negative_threshold=0.2)
    labels, embeddings = batch(7)
    weights = np.linspace(0.2, 1.7, len(labels))
    sup_ap = weighted(LOSSES["sup-ap"][1], labels)

    def definition(x):
        calibration = naive_calibration(labels, similarities(x), 0.9, 0.2)
        return sup_ap(x) + 0.6 * (calibration * weights).mean()

    check_gradient(loss, definition, labels, apart(embeddings), compiled=compiled)


def scores_of(*rows):
    return ops.convert_to_tensor(np.array(rows, "float64"))


def test_a_duplicate_of_a_positive_counts_as_the_definition_says():
    """Equal scores are visited together."""
    scores = scores_of([0.3, 0.3, 0.3, 0.5, 0.2, 0.1])
    positives = np.array([[True, True, True, False, False, False]])
    for loss, before in (
        (SupAPLoss(1e-4, slope=0.0, delta=1.0), [3 / (3 + 1.5)] * 3),
        (PNPLoss("O", temperature=1e-4), None),
    ):
        loss = rebuilt(loss, dtype="float64")
        value = ops.convert_to_numpy(loss.pair_loss(scores, positives, ~positives))[0]
        expected = 1.0 if before is None else 1 - np.mean(before)
        assert value == pytest.approx(expected, abs=1e-9)


def test_sup_ap_is_at_least_one_less_average_precision():
    for seed in range(5):
        labels, embeddings = batch(seed, 20)
        s = similarities(embeddings)
        exact = naive_sup_ap(labels, s, 1e-9, 0.0, 2.0, 0.0)
        values = rebuilt(SupAPLoss(), dtype="float64", reduction=None)
        values = ops.convert_to_numpy(values(labels, embeddings))
        scale = len(labels) / sum((labels == y).sum() > 1 for y in labels)
        assert np.all(values >= scale * exact - 1e-3)


def test_a_far_negative_keeps_a_gradient_in_sup_ap():
    """In Smooth-AP it has none."""
    scores = np.array([[0.1, 0.9]])
    positives = np.array([[True, False]])
    loss = SupAPLoss(dtype="float64")
    _, gradient = value_and_gradient(
        lambda s: ops.sum(loss.pair_loss(s, positives, ~positives)),
        scores,
        compiled=BACKEND == "jax",
    )
    assert gradient[0, 1] > 0.01
    assert gradient[0, 0] == pytest.approx(-gradient[0, 1])


def naive_mixtures(labels, embeddings, number):
    """Items and mixtures, one after the other, with the labels of all."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    rows, names, of = list(unit), list(labels), list(range(len(labels)))
    for label in dict.fromkeys(labels):
        members = np.flatnonzero(labels == label)
        pairs = set()
        for after in range(1, number + 1):
            size = len(members)
            fresh = [
                (p, frozenset((members[p], members[(p + after) % size])))
                for p in range(size)
                if 2 * after < size or (2 * after == size and p < after)
            ]
            for p, pair in fresh:
                assert len(pair) == 2
                assert pair not in pairs
                pairs.add(pair)
                alpha = (p + 0.5) / len(fresh)
                x, z = unit[members[p]], unit[members[(p + after) % size]]
                rows.append(alpha * x + (1 - alpha) * z)
                names.append(label)
                of.append(members[p])
    return np.array(names), np.array(rows), np.array(of)


@pytest.mark.parametrize(
    "number", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))]
)
def test_simix_adds_the_mixtures_of_a_class(number):
    labels, embeddings = batch(5)
    names, rows, of = naive_mixtures(labels, embeddings, number)
    assert len(names) > len(labels)
    expected = naive_recall(names, rows @ rows.T, (1, 2, 4), 0.2, 1.0)
    mean = expected.sum() / sum((names == y).sum() > 1 for y in names)
    loss = RecallAtKLoss((1, 2, 4), temperature=0.2, simix=number, dtype="float64")
    assert float(loss(labels, embeddings)) == pytest.approx(mean, rel=1e-9)
    values = ops.convert_to_numpy(rebuilt(loss, reduction=None)(labels, embeddings))
    shares = np.bincount(of, expected, minlength=len(labels))
    np.testing.assert_allclose(
        values, shares * mean * len(labels) / shares.sum(), atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_gradient_of_simix_is_the_slope_of_its_definition(compiled):
    labels, embeddings = np.array([4, 4, 4, 4, 2, 2, 2, 7, 7]), batch(3, 9)[1]
    weights = np.linspace(0.2, 1.7, len(labels))
    loss = RecallAtKLoss((1, 2), temperature=0.2, simix=2)

    def definition(x):
        names, rows, of = naive_mixtures(labels, x, 2)
        values = naive_recall(names, rows @ rows.T, (1, 2), 0.2, 1.0)
        return float((values * weights[of]).sum() / len(names))

    check_gradient(loss, definition, labels, embeddings, compiled=compiled)


def test_all_pairs_of_a_class_of_four_have_one_mixture_with_two_mates():
    """As in the authors' code, which has 6 for classes of 4, and 15 for those of 6."""
    for size, number, mixtures in ((4, 2, 6), (3, 1, 3), (6, 3, 15)):
        labels = np.zeros(size, int)
        names, *_ = naive_mixtures(labels, np.eye(size), number)
        assert len(names) == size + mixtures


def test_simix_needs_more_than_scores():
    assert RecallAtKLoss().is_pairwise
    assert not RecallAtKLoss(simix=1).is_pairwise


@pytest.mark.parametrize(
    ("k", "rule"),
    [
        ((), "must be a sequence of whole numbers"),
        (5, "must be a sequence of whole numbers"),
        ("12", "must be a sequence of whole numbers"),
        ((1, 0), "must be a whole number of at least 1"),
        ((2, 1), "must rise from each to the next"),
        ((1, 1), "must rise from each to the next"),
    ],
)
def test_k_is_refused(k, rule):
    with pytest.raises(ValueError, match=rf"`k` {rule}.*Received: k="):
        RecallAtKLoss(k)


def test_half_precision_has_the_value_of_single():
    labels, embeddings = batch(0, 60)
    for loss, _ in (LOSSES["recall"], LOSSES["pnp-D_q"]):
        half = float(rebuilt(loss, dtype="float16")(labels, embeddings))
        assert half == pytest.approx(float(loss(labels, embeddings)), rel=0.05)
