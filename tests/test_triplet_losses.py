"""Triplet and margin losses against golden numbers and naive loops over triplets."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

import tfdml.triplet_weights
from tests.autodiff import BACKEND, value_and_gradient
from tests.golden_cases import cases, check, sampler_cases
from tfdml.layers_margin import ClassBoundaries
from tfdml.losses.distance_weighted import (
    DistanceWeightedMarginLoss,
    DistanceWeightedTripletLoss,
    negative_probabilities,
)
from tfdml.losses.margin import LearnedMarginLoss, MarginLoss
from tfdml.losses.triplet import (
    HardTripletLoss,
    SemiHardTripletLoss,
    SemiHardWindowTripletLoss,
    TripletLoss,
)
from tfdml.pairs import unit_rows
from tfdml.triplet_weights import hinge_weights, ranks, semi_hard_weights

pytestmark = [pytest.mark.backend, pytest.mark.slow]

DISTANCES = {
    "sqeuclidean": "squared_euclidean",
    "euclidean": "euclidean",
    "cosine": "cosine",
}
both_dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(params=["in turn", "by bisection"])
def way(request, monkeypatch):
    """Each of the two ways to the weights, whatever the number of positives."""
    few = {"in turn": 10**6, "by bisection": 0}[request.param]
    monkeypatch.setattr(tfdml.triplet_weights, "FEW_POSITIVES", few)


def check_case(case, function, dtype):
    # Outside `jit` JAX compiles each operation for each shape, which takes longer.
    check(case, function, dtype, compiled=BACKEND == "jax")


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


@both_dtypes
@pytest.mark.parametrize("case", cases("triplet_all"))
def test_triplet_loss_equals_the_golden_numbers(case, dtype):
    reduction = case["params"]["reduction"]
    average = "active" if reduction == "mean_active" else "valid"
    loss = TripletLoss(average=average, **distance_arguments(case, dtype))
    check_case(case, on_batch(case, loss, reduction), dtype)


@both_dtypes
@pytest.mark.parametrize("case", cases("triplet_semihard"))
def test_semi_hard_triplet_loss_equals_the_golden_numbers(case, dtype):
    loss = SemiHardTripletLoss(**distance_arguments(case, dtype))
    check_case(case, on_batch(case, loss), dtype)


@both_dtypes
@pytest.mark.parametrize("case", cases("triplet_semihard_window"))
def test_semi_hard_window_loss_equals_the_golden_numbers(case, dtype):
    loss = SemiHardWindowTripletLoss(**distance_arguments(case, dtype))
    check_case(case, on_batch(case, loss), dtype)


@both_dtypes
@pytest.mark.parametrize("case", cases("triplet_batch_hard"))
def test_hard_triplet_loss_equals_the_golden_numbers(case, dtype):
    arguments = distance_arguments(case, dtype)
    loss = HardTripletLoss(soft=case["params"]["soft"], **arguments)
    check_case(case, on_batch(case, loss), dtype)


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


@both_dtypes
@pytest.mark.parametrize("case", cases("triplet_distance_weighted_expected"))
def test_distance_weighted_triplet_loss_equals_the_golden_numbers(case, dtype):
    loss = DistanceWeightedTripletLoss(
        case["params"]["margin"],
        DISTANCES[case["params"]["metric"]],
        case["extra"]["cutoff"],
        case["extra"]["nonzero_loss_cutoff"],
        dtype=dtype,
    )
    check_case(case, on_batch(case, loss), dtype)


@both_dtypes
@pytest.mark.parametrize("case", cases("margin_loss_pairs"))
def test_margin_losses_equal_the_golden_numbers(case, dtype):
    params = case["params"]
    average = "active" if params["reduction"] == "mean_active" else "valid"
    if np.isscalar(params["beta"]):
        assert params["nu"] == 0
        loss = MarginLoss(params["alpha"], params["beta"], average, dtype=dtype)
        check_case(case, on_batch(case, loss), dtype)
        return
    loss = LearnedMarginLoss(
        len(params["beta"]), params["alpha"], params["nu"], average, dtype=dtype
    )
    labels = np.array(case["inputs"]["y"])
    boundaries = np.tile(np.array(params["beta"], dtype), (len(labels), 1))

    def function(**inputs):
        return loss(labels, ops.concatenate([inputs["X"], boundaries], axis=1))

    check_case(case, function, dtype)


@both_dtypes
@pytest.mark.parametrize("case", cases("margin_loss_triplets"))
def test_margin_loss_of_drawn_triplets_equals_the_golden_numbers(case, dtype):
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
        scores = distances - beta[:, None]
        # On JAX `ops.mean` computes in float32 (Keras 3.15).
        value = ops.sum(loss.pair_loss(scores, positives, negatives)) / len(rows)
        far = ops.relu(scores + params["alpha"]) * positives
        near = ops.relu(params["alpha"] - scores) * negatives
        terms = ops.sum(ops.cast(far + near > 0, dtype))
        return value + params["nu"] * beta.sum() / terms

    check_case(case, function, dtype)


def random_rows(seed, anchors=5, gallery=12):
    """Scores on a grid, so full of ties, and masks with empty rows among them."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 8, (anchors, gallery)) / 8
    kind = generator.integers(0, 3, (anchors, gallery))
    kind[0], kind[1] = kind[0] % 2, kind[1] % 2 * 2
    return scores, kind == 1, kind == 2


def triplets_of(positives, negatives):
    for a in range(len(positives)):
        right, wrong = np.flatnonzero(positives[a]), np.flatnonzero(negatives[a])
        for p, n in itertools.product(right, wrong):
            yield a, p, n


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.0, 0.25, 2.0])
@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_hinge_weights_count_the_triplets(seed, margin, window, shared, way):
    scores, positives, negatives = random_rows(seed)
    shares = np.random.default_rng(seed).random(scores.shape)
    expected = np.zeros_like(scores)
    for a, p, n in triplets_of(positives, negatives):
        above = scores[a, n] > scores[a, p] or not window
        if above and scores[a, n] < scores[a, p] + margin:
            expected[a, p] += shares[a, n] if shared else 1
            expected[a, n] -= shares[a, n] if shared else 1
    received = hinge_weights(
        ops.convert_to_tensor(scores),
        positives,
        negatives,
        margin,
        window=window,
        shares=ops.convert_to_tensor(shares) if shared else None,
    )
    np.testing.assert_allclose(ops.convert_to_numpy(received), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("margin", [0.0, 0.25, 2.0])
def test_semi_hard_weights_follow_the_rule(seed, margin, way):
    scores, positives, negatives = random_rows(seed)
    expected = np.zeros_like(scores)
    for a, p in zip(*np.nonzero(positives), strict=True):
        wrong = scores[a, negatives[a]]
        if len(wrong) == 0:
            continue
        farther = wrong[wrong > scores[a, p]]
        chosen = farther.min() if len(farther) else wrong.max()
        if chosen < scores[a, p] + margin:
            tied = negatives[a] & (scores[a] == chosen)
            expected[a, p] += 1
            expected[a, tied] -= 1 / tied.sum()
    received = semi_hard_weights(
        ops.convert_to_tensor(scores), positives, negatives, margin
    )
    np.testing.assert_allclose(ops.convert_to_numpy(received), expected, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_equal_those_of_numpy(ties):
    generator = np.random.default_rng(3)
    rows = np.sort(generator.integers(0, 9, (4, 7)) / 8, axis=1)
    rows[2] = np.inf
    values = generator.integers(-1, 10, (4, 11)) / 8
    received = ops.convert_to_numpy(ranks(rows, values, ties=ties))
    side = "right" if ties else "left"
    expected = [
        np.searchsorted(*row, side=side) for row in zip(rows, values, strict=True)
    ]
    np.testing.assert_array_equal(received, expected)


def naive_distances(x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return ((x[:, None] - x) ** 2).sum(2)


def naive_triplet_loss(x, labels, margin):
    distances = naive_distances(x)
    same = labels[:, None] == labels
    positives = same & ~np.eye(len(labels), dtype=bool)
    hinges = [
        max(0, distances[a, p] - distances[a, n] + margin)
        for a, p, n in triplets_of(positives, ~same)
    ]
    return np.mean(hinges)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_triplet_loss_equals_a_loop_over_all_triplets(compiled, way):
    generator = np.random.default_rng(1)
    labels, x = generator.integers(0, 4, 24), generator.normal(size=(24, 5))
    x[3] = x[7]
    loss = TripletLoss(0.5, dtype="float64")
    value, gradient = value_and_gradient(
        lambda x: loss(labels, x), x, compiled=compiled
    )
    assert value == pytest.approx(naive_triplet_loss(x, labels, 0.5), abs=1e-12)
    direction = generator.normal(size=x.shape)
    ends = [naive_triplet_loss(x + s * 1e-6 * direction, labels, 0.5) for s in (-1, 1)]
    slope = (ends[1] - ends[0]) / 2e-6
    assert (gradient * direction).sum() == pytest.approx(slope, abs=1e-7)


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
    valid = DistanceWeightedMarginLoss(alpha, beta, "valid", dtype=dtype)
    active = DistanceWeightedMarginLoss(alpha, beta, "active", dtype=dtype)
    assert float(valid(labels, x)) == pytest.approx(total / pairs, abs=1e-12)
    assert float(active(labels, x)) == pytest.approx(total / terms, abs=1e-12)


@pytest.mark.parametrize(
    "loss_class", [DistanceWeightedTripletLoss, DistanceWeightedMarginLoss]
)
def test_pair_loss_of_a_distance_weighted_loss_needs_the_dimension(loss_class):
    labels, x = np.repeat([0, 1], 3), np.random.default_rng(0).normal(size=(6, 4))
    scores = loss_class(dtype="float64").scores(x, x)
    same = labels[:, None] == labels
    masks = same & ~np.eye(6, dtype=bool), ~same
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


@pytest.mark.parametrize("jit_compile", [False, True])
def test_learned_boundaries_are_trained_by_fit(jit_compile):
    generator = np.random.default_rng(0)
    labels, x = np.repeat([0, 1, 3], 4), generator.normal(size=(12, 6))
    inputs = keras.Input((6,))
    outputs = ClassBoundaries(4, initial=1.0)(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss=LearnedMarginLoss(4), jit_compile=jit_compile)
    before = model.get_weights()
    model.fit(x, labels, batch_size=12, epochs=1, verbose=0)
    after = model.get_weights()
    assert np.any(before[0] != after[0])
    moved = before[-1] != after[-1]
    assert moved[[0, 1, 3]].any()
    assert not moved[2]  # a class that is not in the batch


def test_model_with_learned_boundaries_is_saved_and_loaded(tmp_path):
    generator = np.random.default_rng(0)
    labels, x = np.repeat([0, 1, 2], 4), generator.normal(size=(12, 6))
    inputs = keras.Input((6,))
    layer = ClassBoundaries(3, 1.0, learning_rate_multiplier=5.0, name="boundaries")
    model = keras.Model(inputs, layer(keras.layers.Dense(3)(inputs)))
    model.compile("adam", loss=LearnedMarginLoss(3, nu=0.1, average="valid"))
    model.fit(x, labels, batch_size=12, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = model.evaluate(x, labels, batch_size=12, verbose=0)
    received = loaded.evaluate(x, labels, batch_size=12, verbose=0)
    assert received == pytest.approx(expected, rel=1e-6)
    assert loaded.loss.get_config() == model.loss.get_config()
    assert loaded.get_layer("boundaries").get_config() == layer.get_config()


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


LOSSES = [
    TripletLoss(),
    TripletLoss(average="active", distance="cosine"),
    SemiHardTripletLoss(),
    SemiHardWindowTripletLoss(),
    HardTripletLoss(),
    HardTripletLoss(soft=True),
    DistanceWeightedTripletLoss(),
    DistanceWeightedMarginLoss(),
    MarginLoss(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_nan_embedding_surfaces(loss):
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    x[5, 2] = np.nan
    assert np.isnan(float(loss(np.repeat([0, 1], 4), x)))


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
