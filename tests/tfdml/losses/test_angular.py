"""Angular losses: golden numbers and naive loops over triplets, in both ways."""

import math

import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, value_and_gradient
from tests.support.loss_entry import Entry
from tests.tfdml.losses.test_every_loss import HARD, hard_batch
from tfdml.losses import AngularLoss, AngularTripletLoss, MultiClassAngularLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow]


IN_TURN, BY_PRODUCT = 0, 10**6


@pytest.fixture(params=[IN_TURN, BY_PRODUCT], ids=["in turn", "by product"])
def way(request):
    """Each of the two ways to the sums, whatever the number of partners."""
    return request.param


def computing(loss, rows_per_partner):
    """Return the loss, which computes its sums in one of the two ways."""
    loss.rows_per_partner = rows_per_partner
    return loss


def unit_batch(seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, 14)  # five or more in some class
    embeddings = generator.normal(size=(14, 3))
    embeddings[4], embeddings[7] = embeddings[1], embeddings[2]
    return labels, embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def costs_of_pairs(labels, x, angle, cost):
    """Sum the cost of each anchor's pairs, given f of Eq. 5 for all its negatives."""
    t = math.tan(math.radians(angle)) ** 2
    values = np.zeros(len(labels))
    for a in range(len(labels)):
        for p in range(len(labels)):
            if a == p or labels[a] != labels[p]:
                continue
            others = x[labels != labels[a]]
            f = 4 * t * (others @ (x[a] + x[p])) - 2 * (1 + t) * (x[a] @ x[p])
            values[a] += cost(f, t)
    return values


def soft(f, t):
    return np.logaddexp.reduce([0.0, *f])


def hinge(f, t):
    return np.maximum(0, f + 2 - 6 * t).sum()


@pytest.mark.parametrize("angle", [36.0, 55.0, 70.0])
@pytest.mark.parametrize("seed", range(3))
def test_angular_loss_equals_a_naive_loop(seed, angle, way):
    labels, x = unit_batch(seed)
    pairs = (np.equal.outer(labels, labels).sum() - 14) / 14
    values = costs_of_pairs(labels, x, angle, soft) / pairs
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-5)):
        loss = computing(AngularLoss(angle, dtype=dtype, reduction=None), way)
        received = np.asarray(loss(labels, x.astype(dtype)))
        assert received == pytest.approx(values, rel=tolerance)


@pytest.mark.parametrize(
    ("loss", "cost"),
    [
        (computing(AngularLoss(40.0, dtype="float64"), IN_TURN), soft),
        (computing(AngularLoss(40.0, dtype="float64"), BY_PRODUCT), soft),
        (AngularTripletLoss(25.0, dtype="float64"), hinge),
    ],
    ids=["soft in turn", "soft by product", "hinge"],
)
def test_weighted_anchors_have_the_gradient_of_their_weighted_values(loss, cost):
    """Each pair moves two rows, with the weight of its own anchor."""
    labels, x = unit_batch(5)
    weights = np.linspace(0.1, 1.9, 14)

    def function(x):
        return loss(labels, x, sample_weight=weights)

    value, gradient = value_and_gradient(function, x, compiled=BACKEND == "jax")
    same = np.equal.outer(labels, labels)
    pairs = same.sum() - 14
    if cost is hinge:
        pairs = ((same.sum(1) - 1) * (~same).sum(1)).sum()

    def naive(x):
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        return (costs_of_pairs(labels, unit, loss.angle, cost) * weights).sum() / pairs

    assert value == pytest.approx(naive(x), rel=1e-9)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-5
        slope = (naive(x + step) - naive(x - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, abs=1e-6)


def test_angular_triplet_without_a_triplet_above_zero_has_no_gradient():
    labels = np.array([0, 0, 1, 1])
    x = np.array([[1, 0], [1, 0.1], [-1, 0], [-1, 0.1]], dtype="float32")
    for average in ("valid", "active"):
        loss = AngularTripletLoss(45.0, average=average)
        value, gradient = value_and_gradient(lambda x, loss=loss: loss(labels, x), x)
        assert value == 0
        assert not gradient.any()


@pytest.mark.parametrize("angle", [45.0, 70.0])
def test_angular_loss_keeps_its_digits_at_the_largest_angle(angle, way):
    # Each end of the pair has its own nearest negative, far from the other end.
    x = np.array([[1, 0], [-1, 0], [1, 1e-3], [-1, 1e-3]], dtype="float32")
    labels = np.array([0, 0, 1, 2])
    loss = computing(AngularLoss(angle), way)
    t = math.tan(math.radians(angle)) ** 2
    value, gradient = value_and_gradient(lambda x: loss(labels, x), x)
    # Each of the two negatives adds e^(2 (1 + t)).
    exact = 2 * (1 + t) + math.log(2 + math.exp(-2 * (1 + t)))
    assert value == pytest.approx(exact, rel=1e-5)
    assert np.all(np.isfinite(gradient))


def test_angular_loss_is_exact_at_any_angle(way):
    loss = computing(AngularLoss(85.0), way)
    x = np.array([[1, 0], [-1, 0], [1, 1e-3], [-1, 1e-3]], dtype="float32")
    labels = np.array([0, 0, 1, 2])
    t = math.tan(math.radians(85.0)) ** 2
    value, _ = value_and_gradient(lambda x: loss(labels, x), x)
    assert value == pytest.approx(math.log(2) + 2 * (1 + t), rel=1e-4)


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("loss", [AngularLoss(), MultiClassAngularLoss()])
def test_rows_in_turn_and_their_product_agree_on_hard_batches(case, loss):
    labels, x = hard_batch(case, Entry(loss))
    results = []
    for way in (IN_TURN, BY_PRODUCT):
        computing(loss, way)
        results.append(value_and_gradient(lambda x: loss(labels, x), x))
    (value, gradient), (expected, other) = results
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert value == pytest.approx(expected, rel=1e-5)
    # At opposite rows the gradient is rounding alone.
    size = max(np.abs(other).max(), 1e-2)
    np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-4 * size)


def test_nan_shows_in_both_ways(way):
    labels, x = unit_batch(0)
    x[3, 1] = np.nan
    loss = computing(AngularLoss(), way)
    assert np.isnan(float(loss(labels, x.astype("float32"))))


@pytest.mark.parametrize(
    "loss",
    [
        AngularTripletLoss(20.0, average="active"),
        computing(AngularLoss(75.0), IN_TURN),
    ],
)
def test_batch_of_one_row_is_0(loss):
    x = np.array([[0.6, 0.8]], dtype="float32")
    value, gradient = value_and_gradient(
        lambda x: ops.sum(loss.call(ops.convert_to_tensor([3]), x)), x
    )
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)
