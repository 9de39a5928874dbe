"""Triplet and margin losses against golden numbers and naive loops over triplets."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import tensors
from tests.support.golden_cases import check, sampler_cases
from tests.support.golden_variants import variants
from tests.support.naive_triplets import naive_distances, triplets_of
from tfdml.layers import ClassBoundaries
from tfdml.losses import (
    DistanceWeightedMarginLoss,
    DistanceWeightedTripletLoss,
    HardTripletLoss,
    LearnedMarginLoss,
    MarginLoss,
    SemiHardTripletLoss,
    SemiHardWindowTripletLoss,
    TripletLoss,
)
from tfdml.losses._distance_weighted_base import negative_probabilities
from tfdml.ops import unit_rows

pytestmark = [pytest.mark.backend, pytest.mark.slow]

DISTANCES = {
    "sqeuclidean": "squared_euclidean",
    "euclidean": "euclidean",
    "cosine": "cosine",
}
both_dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def on_batch(case, loss, reduction="mean"):
    labels = ops.convert_to_tensor(np.array(case["inputs"]["y"]))
    triplets = 1.0
    if reduction == "sum":  # undo the mean over the valid triplets
        same = np.equal.outer(case["inputs"]["y"], case["inputs"]["y"])
        triplets = float(((same.sum(1) - 1) * (~same).sum(1)).sum())
    return lambda **inputs: loss(labels, inputs["X"]) * triplets


def distance_arguments(case, dtype):
    params = case["params"]
    return {
        "margin": params["margin"],
        "distance": DISTANCES[params["metric"]],
        "normalize": params["normalize"],
        "dtype": dtype,
    }


@variants("triplet_all")
def test_triplet_loss_equals_the_golden_numbers(case, dtype, compiled):
    reduction = case["params"]["reduction"]
    average = "active" if reduction == "mean_active" else "valid"
    loss = TripletLoss(average=average, **distance_arguments(case, dtype))
    check(case, on_batch(case, loss, reduction), dtype, compiled=compiled)


@variants("triplet_semihard")
def test_semi_hard_triplet_loss_equals_the_golden_numbers(case, dtype, compiled):
    loss = SemiHardTripletLoss(**distance_arguments(case, dtype))
    check(case, on_batch(case, loss), dtype, compiled=compiled)


@variants("triplet_semihard_window")
def test_semi_hard_window_loss_equals_the_golden_numbers(case, dtype, compiled):
    loss = SemiHardWindowTripletLoss(**distance_arguments(case, dtype))
    check(case, on_batch(case, loss), dtype, compiled=compiled)


@variants("triplet_batch_hard")
def test_hard_triplet_loss_equals_the_golden_numbers(case, dtype, compiled):
    arguments = distance_arguments(case, dtype)
    loss = HardTripletLoss(soft=case["params"]["soft"], **arguments)
    check(case, on_batch(case, loss), dtype, compiled=compiled)


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


@variants("triplet_distance_weighted_expected")
def test_distance_weighted_loss_equals_the_golden_numbers(case, dtype, compiled):
    loss = DistanceWeightedTripletLoss(
        case["params"]["margin"],
        distance=DISTANCES[case["params"]["metric"]],
        cutoff=case["extra"]["cutoff"],
        nonzero_loss_cutoff=case["extra"]["nonzero_loss_cutoff"],
        dtype=dtype,
    )
    check(case, on_batch(case, loss), dtype, compiled=compiled)


@variants("margin_loss_pairs")
def test_margin_losses_equal_the_golden_numbers(case, dtype, compiled):
    params = case["params"]
    average = "active" if params["reduction"] == "mean_active" else "valid"
    if np.isscalar(params["beta"]):
        assert params["nu"] == 0
        loss = MarginLoss(
            params["alpha"], beta=params["beta"], average=average, dtype=dtype
        )
        check(case, on_batch(case, loss), dtype, compiled=compiled)
        return
    loss = LearnedMarginLoss(
        len(params["beta"]),
        alpha=params["alpha"],
        nu=params["nu"],
        average=average,
        dtype=dtype,
    )
    labels = np.array(case["inputs"]["y"])
    boundaries = np.tile(np.array(params["beta"], dtype), (len(labels), 1))

    def function(**inputs):
        return loss(labels, ops.concatenate([inputs["X"], boundaries], axis=1))

    check(case, function, dtype, compiled=compiled)


@variants("margin_loss_triplets")
def test_margin_loss_of_drawn_triplets_equals_the_golden_numbers(case, dtype, compiled):
    """The authors' form: each drawn triplet is an anchor with one of each kind."""
    params, labels = case["params"], np.array(case["inputs"]["y"])
    triplets = np.array(case["inputs"]["triplets"], int).reshape(-1, 3)
    if len(triplets) == 0:
        assert case["expected"]["loss"] == 0
        return
    anchors, rows = triplets[:, 0], np.arange(len(triplets))
    beta = np.broadcast_to(params["beta"], 10)[labels[anchors]].astype(dtype)
    positives = np.zeros((len(triplets), len(labels)), bool)
    negatives = positives.copy()
    positives[rows, triplets[:, 1]] = negatives[rows, triplets[:, 2]] = True
    loss = MarginLoss(params["alpha"], dtype=dtype)

    def function(**inputs):
        x = unit_rows(inputs["X"])
        gaps = ops.expand_dims(ops.take(x, anchors, axis=0), 1) - x
        distances = ops.sqrt(ops.sum(ops.square(gaps), axis=2) + params["eps"])
        scores = distances - ops.convert_to_tensor(beta[:, None])
        # On JAX `ops.mean` computes in float32 (Keras 3.15).
        value = ops.sum(loss.pair_loss(scores, positives, negatives)) / len(rows)
        far = ops.where(positives, ops.relu(scores + params["alpha"]), 0)
        near = ops.where(negatives, ops.relu(params["alpha"] - scores), 0)
        terms = ops.sum(ops.cast(far + near > 0, dtype))
        return value + params["nu"] * beta.sum() / terms

    check(case, function, dtype, compiled=compiled)


def test_distance_weighted_margin_loss_is_the_mean_of_all_draws():
    generator = np.random.default_rng(2)
    labels, x = np.repeat([0, 1, 2, 3], [3, 3, 4, 1]), generator.normal(size=(11, 6))
    alpha, beta, dtype = 0.3, 1.1, "float64"
    squared = naive_distances(x)
    same = labels[:, None] == labels
    q = ops.convert_to_numpy(
        negative_probabilities(ops.convert_to_tensor(squared), ~same, 6, 0.5, 1.4)
    )
    distances = np.sqrt(squared)
    total = terms = pairs = 0
    for a, p, n in triplets_of(same & ~np.eye(11, dtype=bool), ~same):
        far = max(0, distances[a, p] - beta + alpha)
        near = max(0, alpha + beta - distances[a, n])
        total += q[a, n] * (far + near)  # the draw of n for the pair (a, p)
        terms += q[a, n] * (int(far > 0) + int(near > 0))
        pairs += q[a, n]
    valid = DistanceWeightedMarginLoss(alpha, beta=beta, average="valid", dtype=dtype)
    active = DistanceWeightedMarginLoss(alpha, beta=beta, average="active", dtype=dtype)
    assert float(valid(labels, x)) == pytest.approx(total / pairs, abs=1e-12)
    assert float(active(labels, x)) == pytest.approx(total / terms, abs=1e-12)


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_counts_stay_exact_in_half_precision(dtype):
    labels = np.repeat([0, 1], 300)  # 53 million triplets
    x = np.eye(2)[labels][:, ::-1].astype("float32")
    loss = TripletLoss(3.0, dtype=dtype)
    assert float(loss(labels, x)) == 1  # 0 - 2 + 3


def test_boundaries_of_classes_in_the_batch_alone_are_trained():
    generator = np.random.default_rng(0)
    labels, x = np.repeat([0, 1, 3], 4), generator.normal(size=(12, 6))
    inputs = keras.Input((6,))
    outputs = ClassBoundaries(4, initial=1.0)(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss=LearnedMarginLoss(4))
    before = model.get_weights()
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
def test_label_without_a_boundary_makes_the_loss_nan(label):
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    loss = LearnedMarginLoss(3)
    assert np.isfinite(float(loss(np.array([0, 0, 2, 2]), x)))
    assert np.isnan(float(loss(np.array([0, 0, label, label]), x)))


def test_outputs_without_boundaries_are_refused():
    with pytest.raises(ValueError, match=r"ClassBoundaries.*4 columns with.*=4"):
        LearnedMarginLoss(4)(np.zeros(4, int), np.zeros((4, 4), "float32"))


@pytest.mark.parametrize(
    "loss_class",
    [
        TripletLoss,
        SemiHardTripletLoss,
        SemiHardWindowTripletLoss,
        HardTripletLoss,
        DistanceWeightedTripletLoss,
    ],
)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margin": -0.1}, "`margin` must be at least 0 .*=-0.1"),
        ({"margin": float("nan")}, "`margin` must be at least 0 .*=nan"),
        ({"distance": "manhattan"}, "`distance` must be one of .*='manhattan'"),
    ],
)
def test_wrong_arguments_of_triplet_losses_are_refused(loss_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        loss_class(**arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TripletLoss(average="all"), "`average` must be one of .*='all'"),
        (
            lambda: TripletLoss(distance="cosine", normalize=False),
            "`normalize` must be True .*=False",
        ),
        (lambda: MarginLoss(alpha=-1), "`alpha` must be at least 0 .*=-1"),
        (lambda: MarginLoss(beta=-1), "`beta` must be at least 0 .*=-1"),
        (lambda: MarginLoss(average=""), "`average` must be one of .*=''"),
        (lambda: LearnedMarginLoss(0), "`num_classes` must be .*=0"),
        (lambda: LearnedMarginLoss(2, nu=-1), "`nu` must be at least 0 .*=-1"),
        (lambda: DistanceWeightedTripletLoss(cutoff=0), "`cutoff` must be .*=0"),
        (
            lambda: DistanceWeightedMarginLoss(nonzero_loss_cutoff=0.4),
            "`nonzero_loss_cutoff` must be above .*=0.4, cutoff=0.5",
        ),
        (lambda: DistanceWeightedMarginLoss(dimension=1), "`dimension` must be .*=1"),
        (lambda: ClassBoundaries(0), "`num_classes` must be .*=0"),
        (lambda: ClassBoundaries(2, initial=3), "`initial` must be .*=3"),
        (
            lambda: ClassBoundaries(2, learning_rate_multiplier=0),
            "`learning_rate_multiplier` must be .*=0",
        ),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
