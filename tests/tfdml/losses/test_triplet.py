"""Triplet and margin losses against golden numbers and naive loops over triplets."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import tensors, value_and_gradient
from tests.support.golden_cases import sampler_cases
from tests.support.naive_triplets import naive_distances, triplets_of
from tests.support.refuses import refusals, refuses
from tfdml.layers import ClassBoundaries
from tfdml.losses import (
    DistanceWeightedLearnedMarginLoss,
    DistanceWeightedMarginLoss,
    DistanceWeightedTripletLoss,
    LearnedMarginLoss,
    RankedListLoss,
    TripletLoss,
)
from tfdml.losses._distance_weighted_base import negative_probabilities

pytestmark = [pytest.mark.backend, pytest.mark.slow]

both_dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


@both_dtypes
@pytest.mark.parametrize("case", sampler_cases("distance_weighted_probs"))
def test_negative_probabilities_equal_the_golden_numbers(case, dtype):
    x = np.array(case["inputs"]["X"])
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    labels = np.array(case["inputs"]["y"])
    squared = np.maximum(2 - 2 * x @ x.T, 0).astype(dtype)
    cutoffs = case["params"]["cutoff"], case["params"]["nonzero_loss_cutoff"]
    negatives = labels[:, None] != labels
    received = negative_probabilities(
        ops.convert_to_tensor(squared), negatives, x.shape[1], *cutoffs
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(received),
        case["expected"],
        atol=1e-9 if dtype == "float64" else 1e-5,
    )


def all_draws(labels, x, boundaries, alpha, nu=0.0):
    """Add up the draws: their losses, their hinges above 0, and their number."""
    squared = naive_distances(x)
    same = labels[:, None] == labels
    q = ops.convert_to_numpy(
        negative_probabilities(
            ops.convert_to_tensor(squared), ~same, x.shape[1], 0.5, 1.4
        )
    )
    distances = np.sqrt(squared)
    total = terms = pairs = 0
    for a, p, n in triplets_of(same & ~np.eye(len(x), dtype=bool), ~same):
        beta = boundaries[labels[a]]
        far = max(0, distances[a, p] - beta + alpha)
        near = max(0, alpha + beta - distances[a, n])
        total += q[a, n] * (far + near + nu * beta)  # the draw of n for (a, p)
        terms += q[a, n] * (int(far > 0) + int(near > 0))
        pairs += q[a, n]
    return total, terms, pairs


def test_distance_weighted_margin_loss_is_the_mean_of_all_draws():
    generator = np.random.default_rng(2)
    labels, x = np.repeat([0, 1, 2, 3], [3, 3, 4, 1]), generator.normal(size=(11, 6))
    alpha, beta, dtype = 0.3, 1.1, "float64"
    total, terms, pairs = all_draws(labels, x, np.full(4, beta), alpha)
    valid = DistanceWeightedMarginLoss(alpha, beta=beta, average="valid", dtype=dtype)
    active = DistanceWeightedMarginLoss(alpha, beta=beta, average="active", dtype=dtype)
    assert float(valid(labels, x)) == pytest.approx(total / pairs, abs=1e-12)
    assert float(active(labels, x)) == pytest.approx(total / terms, abs=1e-12)


def test_margin_loss_with_learned_boundaries_is_the_mean_of_all_draws():
    generator = np.random.default_rng(3)
    labels, x = np.repeat([0, 1, 2, 3], [3, 3, 4, 1]), generator.normal(size=(11, 6))
    boundaries, alpha, nu = np.array([0.9, 1.1, 1.3, 1.2, 0.7]), 0.3, 0.2
    total, terms, pairs = all_draws(labels, x, boundaries, alpha, nu)
    outputs = np.concatenate([x, np.tile(boundaries, (11, 1))], axis=1)
    for average, count in (("valid", pairs), ("active", terms)):
        loss = DistanceWeightedLearnedMarginLoss(
            5, alpha=alpha, nu=nu, average=average, dtype="float64"
        )
        assert float(loss(labels, outputs)) == pytest.approx(total / count, abs=1e-12)


def test_equal_boundaries_give_the_margin_loss_with_a_fixed_one():
    generator = np.random.default_rng(4)
    labels, x = np.repeat([0, 1, 2], 4), generator.normal(size=(12, 6))
    outputs = np.concatenate([x, np.full((12, 3), 1.1)], axis=1)
    fixed = DistanceWeightedMarginLoss(beta=1.1, dtype="float64", reduction=None)
    learned = DistanceWeightedLearnedMarginLoss(3, dtype="float64", reduction=None)
    np.testing.assert_allclose(
        ops.convert_to_numpy(learned(labels, outputs)),
        ops.convert_to_numpy(fixed(labels, x)),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    "loss_class", [DistanceWeightedTripletLoss, DistanceWeightedMarginLoss]
)
def test_pair_loss_of_a_distance_weighted_loss_needs_the_dimension(loss_class):
    labels, x = np.repeat([0, 1], 3), np.random.default_rng(0).normal(size=(6, 4))
    scores = loss_class(dtype="float64").scores(*tensors(x, x))
    same = labels[:, None] == labels
    masks = tensors(same & ~np.eye(6, dtype=bool), ~same)
    with pytest.raises(ValueError, match="`dimension`"):
        loss_class(dtype="float64").pair_loss(scores, *masks)
    values = loss_class(dimension=4, dtype="float64").pair_loss(scores, *masks)
    expected = loss_class(reduction=None, dtype="float64")(labels, x)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(values), ops.convert_to_numpy(expected)
    )


def naive_ranked_list(labels, x, alpha, m, t, balance):
    """The mean over all queries of L_P + lambda L_N, as in the paper."""
    total = 0.0
    for a in range(len(x)):
        far, near, weights = [], [], []
        for j in range(len(x)):
            distance = np.linalg.norm(x[a] - x[j])
            if labels[a] == labels[j]:
                if a != j and distance > alpha - m:
                    far.append(distance - (alpha - m))
            elif distance < alpha:
                near.append(alpha - distance)
                weights.append(np.exp(t * (alpha - distance)))
        total += np.mean(far) if far else 0.0
        if near:
            total += balance * np.dot(weights, near) / np.sum(weights)
    return total / len(x)


@pytest.mark.parametrize(
    ("alpha", "m", "t", "balance"),
    [(1.2, 0.4, 10, 1), (1.4, 0.2, 0.1, 0.5), (0.9, 1.5, 40, 3), (1.6, 0, 1, 0)],
)
def test_ranked_list_loss_equals_a_naive_loop(alpha, m, t, balance):
    generator = np.random.default_rng(6)
    labels, x = np.repeat([0, 1, 2, 3], [4, 3, 5, 1]), generator.normal(size=(13, 3))
    loss = RankedListLoss(
        alpha, margin=m, scale=t, negative_weight=balance, dtype="float64"
    )
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = naive_ranked_list(labels, unit, alpha, m, t, balance)
    assert float(loss(labels, x)) == pytest.approx(expected, abs=1e-7)


def test_weights_of_ranked_lists_are_constants():
    distances = np.array([[0.5, 0.9, 1.3, 1.0, 0.7]])
    positives = np.array([[False, False, False, True, True]])
    loss = RankedListLoss(1.2, margin=0.4, scale=10.0, dtype="float64")
    _, gradient = value_and_gradient(
        lambda d: ops.sum(loss.pair_loss(d, positives, ~positives)), distances
    )
    weights = np.exp([7.0, 3.0]) / np.exp([7.0, 3.0]).sum()
    np.testing.assert_allclose(gradient, [[*-weights, 0, 1, 0]], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_counts_stay_exact_in_half_precision(dtype):
    labels = np.repeat([0, 1], 300)  # 53 million triplets
    x = np.eye(2)[labels][:, ::-1].astype("float32")
    loss = TripletLoss(3.0, dtype=dtype)
    assert float(loss(labels, x)) == 1  # 0 - 2 + 3


def test_boundaries_of_classes_in_the_batch_alone_are_trained():
    generator = np.random.default_rng(0)
    labels, x = np.repeat([0, 1, 3], 4), generator.normal(size=(12, 6))
    keras.utils.set_random_seed(0)  # with some weights no boundary would move
    inputs = keras.Input((6,))
    outputs = ClassBoundaries(4, initial=1.0)(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss=LearnedMarginLoss(4))
    before = [np.array(w) for w in model.get_weights()]  # not a view of what is trained
    model.fit(x, labels, batch_size=12, epochs=1, verbose=0)
    after = model.get_weights()
    assert np.any(before[0] != after[0])
    moved = before[-1] != after[-1]
    assert moved[[0, 1, 3]].any()
    assert not moved[2]  # a class that is not in the batch


def test_multiplier_is_a_learning_rate_of_the_boundaries():
    def boundary_after(multiplier, rate):
        inputs = keras.Input((2,))
        layer = ClassBoundaries(1, 1.0, learning_rate_multiplier=multiplier)
        model = keras.Model(inputs, layer(inputs))
        model.compile(
            keras.optimizers.Adam(rate, epsilon=0.0), loss=LearnedMarginLoss(1, nu=1.0)
        )
        x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2, int)
        model.fit(x, y, epochs=3, verbose=0)
        return ops.convert_to_numpy(layer.boundaries)

    received = boundary_after(10.0, 0.001)
    np.testing.assert_allclose(received, boundary_after(1.0, 0.01), rtol=1e-5)
    assert received[0] != 1.0


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize(
    "loss_class", [LearnedMarginLoss, DistanceWeightedLearnedMarginLoss]
)
def test_label_without_a_boundary_makes_the_loss_nan(loss_class, label):
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    loss = loss_class(3)
    assert np.isfinite(float(loss(np.array([0, 0, 2, 2]), x)))
    assert np.isnan(float(loss(np.array([0, 0, label, label]), x)))


def test_outputs_without_boundaries_are_refused():
    with pytest.raises(ValueError, match=r"ClassBoundaries.*4 columns with.*=4"):
        LearnedMarginLoss(4)(np.zeros(4, int), np.zeros((4, 4), "float32"))


@refusals(
    ("num_classes", 0, "must be a whole number of at least 1"),
    ("initial", 3, "must be"),
    ("learning_rate_multiplier", 0, "must be above 0"),
)
def test_boundaries_out_of_range_are_refused(argument, value, rule):
    valid = {"num_classes": 2}
    refuses(ClassBoundaries, argument=argument, value=value, rule=rule, valid=valid)
