"""The triplet loss on continuous labels against loops over its triplets."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, JIT, value_and_gradient
from tests.support.naive_triplets import naive_distances
from tfdml.losses import ContinuousTripletLoss, TripletLoss

pytestmark = [pytest.mark.backend, pytest.mark.slow]

DENSE, BINARY = None, 2.0
both_ways = pytest.mark.parametrize("threshold", [DENSE, BINARY], ids=str)


def squared(labels):
    gaps = labels.astype("float64")[:, None] - labels.astype("float64")
    return np.square(gaps).reshape(*gaps.shape[:2], -1).sum(axis=2)


def naive_loss(embeddings, targets, margin, threshold):
    """The mean over all triplets, in float64, one after the other."""
    distances = naive_distances(embeddings)
    hinges = []
    for a, i, j in itertools.permutations(range(len(embeddings)), 3):
        near, far = targets[a, i], targets[a, j]
        if near < far if threshold is DENSE else near <= threshold < far:
            hinges.append(max(0.0, distances[a, i] - distances[a, j] + margin))
    return np.mean(hinges) if hinges else 0.0


def naive_gradient(embeddings, *arguments, step=1e-6):
    gradient = np.zeros_like(embeddings)
    for place in np.ndindex(embeddings.shape):
        ends = []
        for sign in (-1, 1):
            moved = embeddings.copy()
            moved[place] += sign * step
            ends.append(naive_loss(moved, *arguments))
        gradient[place] = (ends[1] - ends[0]) / (2 * step)
    return gradient


@pytest.fixture
def batch():
    """Labels on a grid, so full of equal distances, and embeddings, two of them equal.

    Eleven rows: no multiple of the rows that are compared in one step.
    """
    random = np.random.default_rng(4)
    labels = random.integers(0, 4, size=(11, 2))
    embeddings = random.normal(size=(11, 3))
    embeddings[7] = embeddings[2]
    return labels, embeddings


@both_ways
@pytest.mark.parametrize("compiled", JIT)
def test_value_and_gradient_equal_the_loop_over_triplets(batch, threshold, compiled):
    labels, embeddings = batch
    loss = ContinuousTripletLoss(0.3, threshold=threshold, dtype="float64")
    value, gradient = value_and_gradient(
        lambda x: loss(labels, x), embeddings, compiled=compiled
    )
    arguments = squared(labels), 0.3, threshold
    assert value == pytest.approx(naive_loss(embeddings, *arguments), rel=1e-12)
    expected = naive_gradient(embeddings, *arguments)
    np.testing.assert_allclose(gradient, expected, atol=1e-8)


@both_ways
def test_batches_of_all_sizes_equal_the_loop(threshold):
    random = np.random.default_rng(2)
    loss = ContinuousTripletLoss(0.1, threshold=threshold, dtype="float64")
    for rows in (1, 3, 8, 17):
        labels, x = random.integers(0, 5, size=rows), random.normal(size=(rows, 4))
        expected = naive_loss(x, squared(labels), 0.1, threshold)
        assert float(loss(labels, x)) == pytest.approx(expected, rel=1e-12), rows


@both_ways
def test_float32_is_near_the_loop(batch, threshold):
    labels, embeddings = batch
    expected = naive_loss(embeddings, squared(labels), 0.03, threshold)
    loss = ContinuousTripletLoss(threshold=threshold)
    received = float(loss(labels, embeddings.astype("float32")))
    assert received == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("distance", "normalize"),
    [("squared_euclidean", True), ("cosine", True), ("euclidean", False)],
)
def test_classes_far_apart_make_it_the_triplet_loss(distance, normalize):
    random = np.random.default_rng(1)
    classes, x = random.integers(0, 3, size=12), random.normal(size=(12, 4))
    other = {"distance": distance, "normalize": normalize, "dtype": "float64"}
    expected = TripletLoss(0.5, reduction=None, **other)(classes, x)
    binary = ContinuousTripletLoss(0.5, threshold=1.0, reduction=None, **other)
    received = binary(100.0 * classes[:, None], x)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(received), ops.convert_to_numpy(expected)
    )
    # Of two classes also without a threshold: one label distance is 0, the other not.
    two = np.minimum(classes, 1)
    dense = ContinuousTripletLoss(0.5, **other)
    expected = float(TripletLoss(0.5, **other)(two, x))
    assert float(dense(two, x)) == pytest.approx(expected, rel=1e-12)


@keras.saving.register_keras_serializable(package="tests")
def how_much_larger(labels, others):
    """A label distance that is not symmetric."""
    return ops.relu(ops.expand_dims(others, 0) - ops.expand_dims(labels, 1))


@both_ways
def test_label_distances_may_be_a_matrix_or_a_function(batch, threshold):
    labels, embeddings = batch[0][:, 0].astype("float64"), batch[1]
    targets = np.maximum(labels - labels[:, None], 0)
    expected = naive_loss(embeddings, targets, 0.3, threshold)
    assert expected != naive_loss(embeddings, targets.T, 0.3, threshold)
    own = ContinuousTripletLoss(
        0.3, threshold=threshold, label_distance=how_much_larger, dtype="float64"
    )
    matrix = ContinuousTripletLoss(
        0.3, threshold=threshold, label_distance="precomputed", dtype="float64"
    )
    np.fill_diagonal(targets, np.nan)  # which does not count
    assert float(own(labels, embeddings)) == pytest.approx(expected, rel=1e-12)
    assert float(matrix(targets, embeddings)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("threshold", "anchors"),
    [
        (9.0, [1, 0, 1]),  # (0, 1, 2) and (2, 1, 0)
        (8.99, [0, 1, 1]),  # (1, 2, 0) and (2, 1, 0)
    ],
)
def test_label_at_the_threshold_is_near(threshold, anchors):
    labels, x = np.array([0.0, 3.0, 4.0]), np.eye(3)
    loss = ContinuousTripletLoss(0.25, threshold=threshold, reduction=None)
    values = ops.convert_to_numpy(loss(labels, x))
    # All hinges are the margin; two anchors share the mean of three.
    np.testing.assert_allclose(values, np.array(anchors) * 0.25 * 3 / 2, rtol=1e-6)


@both_ways
@pytest.mark.parametrize("power", [-110, 110])
def test_unit_of_the_labels_changes_nothing(batch, threshold, power):
    """Also where the squares of labels are no numbers of float32."""
    labels, embeddings = batch[0].astype("float32"), batch[1]
    expected = float(
        ContinuousTripletLoss(0.3, threshold=threshold)(labels, embeddings)
    )
    unit = 2.0**power
    if threshold is not None:
        threshold *= unit**2
    scaled = labels * np.float32(unit)
    received = float(
        ContinuousTripletLoss(0.3, threshold=threshold)(scaled, embeddings)
    )
    assert received == expected > 0


def test_equal_gaps_of_labels_are_no_triplets_whatever_the_largest_label():
    # 1/3, 2/3 and 1 would not be equally far apart in float32.
    labels, x = np.array([1.0, 2.0, 3.0], "float32"), np.eye(3)
    loss = ContinuousTripletLoss(0.25, reduction=None)
    values = ops.convert_to_numpy(loss(labels, x))
    np.testing.assert_allclose(values, [0.375, 0, 0.375], rtol=1e-6)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_large_whole_labels_keep_their_differences(batch, kind):
    steps = np.arange(11) ** 2
    expected = float(ContinuousTripletLoss()(steps.astype(kind), batch[1]))
    moved = (steps + 1_700_000_000).astype(kind)  # seconds since 1970
    assert float(ContinuousTripletLoss()(moved, batch[1])) == expected


@both_ways
def test_half_precision_labels_and_embeddings_are_near(batch, threshold):
    labels, embeddings = batch[0] + 300, batch[1].astype("float16")  # 300^2 > 65504
    expected = float(
        ContinuousTripletLoss(0.3, threshold=threshold)(labels, embeddings)
    )
    half = ContinuousTripletLoss(0.3, threshold=threshold, dtype="float16")
    received = float(half(labels.astype("float16"), embeddings))
    assert received == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("threshold", "labels"),
    [
        (DENSE, np.full(6, 7.0)),
        (BINARY, np.full(6, 7.0)),
        (0.0, np.arange(6.0)),
        (25.0, np.arange(6.0)),
    ],
)
def test_batch_without_a_triplet_costs_nothing(threshold, labels):
    x = np.random.default_rng(0).normal(size=(6, 3))
    loss = ContinuousTripletLoss(0.3, threshold=threshold, dtype="float64")
    value, gradient = value_and_gradient(lambda x: loss(labels, x), x)
    assert value == 0
    assert not gradient.any()


def naive_neighbors(embeddings, targets, margin, neighbors):
    """The same with the nearest items of each anchor as its positives, one by one."""
    distances = naive_distances(embeddings)
    hinges = []
    for a in range(len(embeddings)):
        others = [i for i in range(len(embeddings)) if i != a]
        nearer = {i: sum(targets[a, j] < targets[a, i] for j in others) for i in others}
        # Those as near as the last of the neighbors count, too.
        positives = [i for i in others if nearer[i] < neighbors]
        for i, j in itertools.product(positives, set(others) - set(positives)):
            hinges.append(max(0.0, distances[a, i] - distances[a, j] + margin))
    return np.mean(hinges) if hinges else 0.0


@pytest.mark.parametrize("neighbors", [1, 3, 9, 10, 50])
@pytest.mark.parametrize("compiled", JIT)
def test_neighbors_are_the_positives_of_each_anchor(batch, neighbors, compiled):
    labels, embeddings = batch
    loss = ContinuousTripletLoss(0.3, neighbors=neighbors, dtype="float64")
    value, gradient = value_and_gradient(
        lambda x: loss(labels, x), embeddings, compiled=compiled
    )
    expected = naive_neighbors(embeddings, squared(labels), 0.3, neighbors)
    assert value == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(gradient).all()
    # With ten others or more, none is left as a negative.
    assert (value == 0) == (neighbors >= 10)


def test_neighbors_of_a_rare_label_are_positives_however_far():
    labels, x = np.array([0.0, 1.0, 2.0, 100.0]), np.eye(4)
    loss = ContinuousTripletLoss(0.25, neighbors=1, reduction=None)
    # Item 1 has two nearest, 0 and 2; item 3 is positive with 2, 98 away.
    hinges = np.array([2, 2, 2, 2]) * 0.25
    values = ops.convert_to_numpy(loss(labels, x))
    np.testing.assert_allclose(values, hinges * 4 / 8, rtol=1e-6)


def test_neighbors_and_a_threshold_are_not_both_given():
    with pytest.raises(ValueError, match="`neighbors` must be None where `threshold`"):
        ContinuousTripletLoss(threshold=1.0, neighbors=2)
    with pytest.raises(ValueError, match="`neighbors` must be a whole number of at"):
        ContinuousTripletLoss(neighbors=0)


def test_triplet_exactly_at_the_margin_has_no_gradient():
    labels = np.array([0.0, 1.0, 3.0])
    x = np.array([[0.0], [1.0], [1.5]])  # D(f_2, .): 0.25 and 2.25
    loss = ContinuousTripletLoss(
        1.25, distance="squared_euclidean", normalize=False, dtype="float64"
    )
    # Of anchor 0: 1 - 2.25 + 1.25 = 0. Of anchor 1: 1 - 0.25 + 1.25 = 2.
    value, gradient = value_and_gradient(lambda x: loss(labels, x), x)
    assert value == pytest.approx(2 / 3)
    # 1/3 of the gradient of (f_1 - f_0)^2 - (f_1 - f_2)^2
    np.testing.assert_allclose(gradient[:, 0], np.array([-2, 2 + 1, -1]) / 3)


@both_ways
@pytest.mark.parametrize("where", ["label", "embedding", "matrix"])
def test_nan_surfaces(batch, threshold, where):
    labels, embeddings = batch[0].astype("float64"), batch[1]
    kind = "precomputed" if where == "matrix" else "squared_euclidean"
    labels = squared(labels) if where == "matrix" else labels
    broken = embeddings if where == "embedding" else labels
    broken[5, 1] = np.nan
    loss = ContinuousTripletLoss(threshold=threshold, label_distance=kind)
    assert np.isnan(float(loss(labels, embeddings)))


@both_ways
def test_negative_label_distances_are_refused_and_nan_where_compiled(batch, threshold):
    targets = squared(batch[0])
    targets[2, 5] = -1.0
    loss = ContinuousTripletLoss(threshold=threshold, label_distance="precomputed")
    with pytest.raises(ValueError, match=r"at least 0\. Received: -1"):
        loss(targets, batch[1])
    if BACKEND == "tensorflow":
        import tensorflow as tf

        assert np.isnan(float(tf.function(loss)(targets, batch[1])))


def test_config_round_trip_keeps_a_function_and_the_threshold():
    loss = ContinuousTripletLoss(
        0.2,
        threshold=2,
        label_distance=how_much_larger,
        distance="euclidean",
        normalize=False,
    )
    again = ContinuousTripletLoss.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()
    assert again.label_distance is how_much_larger
    assert (again.threshold, again.triplet_loss.margin) == (2.0, 0.2)
    assert (again.triplet_loss.distance, again.triplet_loss.normalize) == (
        "euclidean",
        False,
    )


@pytest.mark.parametrize("shape", [(11, 10), (11,), (11, 11, 1)])
def test_matrix_that_is_not_square_is_refused(batch, shape):
    loss = ContinuousTripletLoss(label_distance="precomputed")
    with pytest.raises(ValueError, match=r"square matrix .* shape=\(11"):
        loss(np.ones(shape), batch[1])
