"""The log-ratio loss and its label distances against goldens and naive loops."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, value_and_gradient
from tests.support.golden_cases import cases
from tfdml.losses import LogRatioLoss
from tfdml.ops import caption_distance, segmentation_distance, squared_label_distance

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("case", cases("log_ratio_official_code"))
def test_authors_code_is_a_quarter_for_the_first_anchor(case):
    embeddings = np.array(case["inputs"]["X"])
    unsquared = np.array(case["inputs"]["gt_dist"]) + case["params"]["eps"]
    targets = np.ones((len(embeddings), len(embeddings)))
    targets[0, 1:] = unsquared**2
    loss = LogRatioLoss("precomputed", epsilon=0.0, reduction=None, dtype="float64")
    first = float(numpy(loss(targets, embeddings))[0])
    # The code adds 1e-4 / dimension to D, and 1e-6 to its root.
    assert first / 4 == pytest.approx(case["expected"]["loss"], rel=1e-3)


def naive_loss(embeddings, targets, epsilon):
    """Eq. 3 over every triplet, in float64."""
    values = []
    for a in range(len(embeddings)):
        listed = []
        for i in range(len(embeddings)):
            distance = ((embeddings[a] - embeddings[i]) ** 2).sum() + epsilon
            if i != a and targets[a, i] != 0 and distance != 0:
                listed.append((distance, targets[a, i]))
        terms = [
            (np.log(di / dj) - np.log(ti / tj)) ** 2
            for (di, ti), (dj, tj) in itertools.combinations(listed, 2)
        ]
        if terms:
            values.append(np.mean(terms))
    return np.mean(values) if values else 0.0


@pytest.fixture
def batch():
    """Poses and embeddings, with duplicates of both kinds."""
    random = np.random.default_rng(4)
    poses = random.normal(size=(12, 3))
    embeddings = random.normal(size=(12, 5))
    poses[3] = poses[4]
    embeddings[7] = embeddings[8]
    return poses, embeddings


def squared(poses):
    return ((poses[:, np.newaxis] - poses[np.newaxis]) ** 2).sum(axis=-1)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_loss_of_poses_equals_the_loop_over_triplets(batch, epsilon):
    poses, embeddings = batch
    expected = naive_loss(embeddings, squared(poses), epsilon)
    exact = LogRatioLoss(epsilon=epsilon, dtype="float64")
    assert float(exact(poses, embeddings)) == pytest.approx(expected, rel=1e-9)
    single = LogRatioLoss(epsilon=epsilon)
    received = float(single(poses.astype("float32"), embeddings.astype("float32")))
    assert received == pytest.approx(expected, rel=1e-4)
    shaped = poses.reshape(12, 3, 1)
    assert float(exact(shaped, embeddings)) == float(exact(poses, embeddings))
    matrix = LogRatioLoss("precomputed", epsilon=epsilon, dtype="float64")
    assert float(matrix(squared(poses), embeddings)) == pytest.approx(expected)


def test_duplicates_that_are_left_out_with_epsilon_zero():
    # Whole numbers: the distance of the duplicate is exactly 0.
    embeddings = np.array([[0, 0], [0, 0], [4, 0], [0, 8]], "float64") - [[1, 2]]
    targets = squared(np.array([[0.0], [1.0], [3.0], [7.0]]))
    loss = LogRatioLoss("precomputed", epsilon=0.0, dtype="float64")
    expected = naive_loss(embeddings, targets, 0.0)
    assert float(loss(targets, embeddings)) == pytest.approx(expected, rel=1e-9)


def test_equal_ratios_have_no_loss(batch):
    poses, _ = batch
    for factor in (1e-12, 1.0, 1e12):
        loss = LogRatioLoss(epsilon=0.0, dtype="float64")
        assert float(loss(factor * poses, poses)) == pytest.approx(0, abs=1e-12)
        assert float(loss(poses, factor * poses)) == pytest.approx(0, abs=1e-12)


def test_float32_keeps_its_digits_where_logarithms_are_far_from_zero():
    # Spread 0.01 around 20: the uncentered sum of squares would lose a fifth.
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 200))
    targets = np.exp(-40 + 0.01 * random.normal(size=(150, 150)))
    expected = float(LogRatioLoss("precomputed", dtype="float64")(targets, x))
    received = float(LogRatioLoss("precomputed")(targets, x.astype("float32")))
    assert received == pytest.approx(expected, rel=1e-4)


def test_embeddings_far_from_the_origin_lose_few_digits(batch):
    poses, embeddings = batch[0], np.delete(batch[1], 8, axis=0)
    poses = np.delete(poses, 8, axis=0)
    loss = LogRatioLoss()
    moved = (embeddings + 100).astype("float32")
    exact = naive_loss(moved.astype("float64"), squared(poses), 1e-6)
    assert float(loss(poses, moved)) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("change", [np.ones_like, np.zeros_like])
def test_equal_embeddings_are_finite_with_epsilon_zero(batch, change):
    poses, embeddings = batch
    loss = LogRatioLoss(epsilon=0.0)
    value, gradient = value_and_gradient(
        lambda x: loss(poses, x), change(embeddings.astype("float32"))
    )
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("labels", [np.zeros((12, 2)), np.full((12,), 7)])
def test_equal_labels_have_no_ratio_and_no_loss(batch, labels):
    value, gradient = value_and_gradient(
        lambda x: LogRatioLoss(dtype="float64")(labels, x), batch[1]
    )
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_scale_of_the_labels_changes_nothing(batch, scale):
    poses, embeddings = batch
    poses = poses.astype("float32")
    expected = float(LogRatioLoss()(poses, embeddings))
    scaled = poses * np.float32(scale)
    assert float(LogRatioLoss()(scaled, embeddings)) == pytest.approx(expected, 1e-5)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_large_whole_labels_keep_their_differences(batch, kind):
    steps = np.arange(12) ** 2
    expected = float(LogRatioLoss()(steps.astype(kind), batch[1]))
    moved = (steps + 1_700_000_000).astype(kind)  # seconds since 1970
    assert float(LogRatioLoss()(moved, batch[1])) == pytest.approx(expected, rel=1e-6)


def test_anchor_without_a_pair_adds_exactly_zero():
    random = np.random.default_rng(1)
    targets = squared(random.normal(size=(6, 2)))
    targets[2] = 0
    targets[2, 4] = 1  # one item is no pair
    loss = LogRatioLoss("precomputed", dtype="float64", reduction=None)
    embeddings = random.normal(size=(6, 3))
    values = numpy(loss(targets, embeddings))
    assert values[2] == 0
    assert np.all(np.delete(values, 2) > 0)
    expected = naive_loss(embeddings, targets, 1e-6)
    assert values.mean() == pytest.approx(expected, rel=1e-9)


def test_batch_of_two_adds_zero_and_of_one_too(batch):
    for rows in (1, 2):
        value = float(LogRatioLoss()(batch[0][:rows], batch[1][:rows]))
        assert value == 0


@pytest.mark.parametrize("where", ["label", "embedding", "matrix"])
def test_nan_surfaces(batch, where):
    poses, embeddings = batch
    loss = LogRatioLoss("precomputed") if where == "matrix" else LogRatioLoss()
    labels = squared(poses) if where == "matrix" else poses
    broken = embeddings if where == "embedding" else labels
    broken[5, 1] = np.nan
    assert np.isnan(float(loss(labels, embeddings)))


def test_segmentation_distance_is_one_minus_mean_iou():
    random = np.random.default_rng(3)
    maps = random.integers(0, 4, size=(5, 6, 7))  # class 3 of 5 is nowhere in some
    maps[1] = maps[0]
    maps[2] = 0
    maps[3] = 4
    distances = numpy(segmentation_distance(*[ops.one_hot(maps, 5)] * 2))
    for a, b in itertools.product(range(5), repeat=2):
        ratios = [
            ((maps[a] == c) & (maps[b] == c)).sum()
            / ((maps[a] == c) | (maps[b] == c)).sum()
            for c in range(5)
            if (maps[a] == c).any() or (maps[b] == c).any()
        ]
        assert distances[a, b] == pytest.approx(1 - np.mean(ratios), abs=1e-6)
    assert distances[0, 1] == 0
    assert distances[2, 3] == 1


def test_caption_distance_pairs_each_caption_with_its_nearest():
    random = np.random.default_rng(3)
    captions = random.normal(size=(4, 3, 8))
    captions[1] = captions[0][::-1] * 2  # the same sentences in another order
    unit = captions / np.linalg.norm(captions, axis=-1, keepdims=True)
    distances = numpy(caption_distance(captions, captions))
    for a, b in itertools.product(range(4), repeat=2):
        d = 1 - unit[a] @ unit[b].T
        expected = d.min(axis=1).sum() + d.min(axis=0).sum()
        assert distances[a, b] == pytest.approx(expected, abs=1e-6)
    single = numpy(caption_distance(captions.astype("float32")[:, 0], captions[:, 0]))
    assert single.shape == (4, 4)
    assert distances[0, 1] == distances[2, 2] == single[0, 0] == 0


def test_squared_label_distance_is_exact(batch):
    poses = batch[0].astype("float32") * 1e-3 + 1
    distances = numpy(squared_label_distance(poses, poses))
    np.testing.assert_allclose(distances, squared(poses.astype("float64")), rtol=1e-5)
    assert distances[3, 4] == 0


@pytest.mark.parametrize("function", [segmentation_distance, caption_distance])
def test_label_distance_functions_are_used(batch, function):
    random = np.random.default_rng(6)
    labels = numpy(ops.one_hot(random.integers(0, 3, size=(12, 9)), 3))
    matrix = numpy(function(labels, labels))
    expected = naive_loss(batch[1], matrix.astype("float64"), 1e-6)
    received = float(LogRatioLoss(function, dtype="float64")(labels, batch[1]))
    assert received == pytest.approx(expected, rel=1e-6)


@keras.saving.register_keras_serializable(package="tests")
def manhattan(labels, others):
    """Label distance of a user."""
    return ops.sum(ops.abs(labels[:, None] - others[None]), axis=-1)


ALL = [
    LogRatioLoss(),
    LogRatioLoss(epsilon=0.0),
    LogRatioLoss(caption_distance),
    LogRatioLoss(manhattan),
]
all_losses = pytest.mark.parametrize("loss", ALL, ids=["poses", "0", "captions", "own"])


@all_losses
def test_config_round_trip_keeps_every_argument(loss):
    config = {**loss.get_config(), "dtype": "float16", "name": "n", "reduction": "sum"}
    again = LogRatioLoss.from_config(config)
    assert again.get_config() == config
    assert again.label_distance == loss.label_distance


def small_model():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(4)])


@all_losses
def test_fit_trains_on_batches_of_several_sizes(loss, batch):
    poses, inputs = batch
    model = small_model()
    model.compile("adam", loss=loss)
    before = model.get_weights()[0].copy()
    model.fit(inputs, poses, batch_size=5, verbose=0)
    assert np.any(model.get_weights()[0] != before)
    poses, inputs = np.delete(poses, 8, axis=0), np.delete(inputs, 8, axis=0)
    expected = float(loss(poses, ops.convert_to_numpy(model(inputs))))
    history = model.fit(inputs, poses, batch_size=12, verbose=0)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_loss_is_near(batch, dtype):
    poses, embeddings = batch
    keep = [i for i in range(12) if i not in (4, 8)]  # no duplicates
    expected = float(LogRatioLoss()(poses[keep], embeddings[keep]))
    received = float(LogRatioLoss(dtype=dtype)(poses[keep], embeddings[keep]))
    assert received == pytest.approx(expected, rel=0.1)


@all_losses
def test_compiled_model_is_saved_and_loaded_with_the_loss(loss, batch, tmp_path):
    poses, inputs = batch
    model = small_model()
    model.compile("sgd", loss=loss)
    model.fit(inputs, poses, batch_size=12, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    expected = model.evaluate(inputs, poses, batch_size=12, verbose=0)
    received = loaded.evaluate(inputs, poses, batch_size=12, verbose=0)
    assert received == pytest.approx(expected, rel=1e-5)


def test_fit_takes_a_matrix_a_batch(batch):
    poses, inputs = batch
    model = small_model()
    model.compile("sgd", loss=LogRatioLoss("precomputed"))
    targets = squared(poses)
    expected = float(LogRatioLoss()(poses, model.predict(inputs, verbose=0)))
    assert model.train_on_batch(inputs, targets) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("shape", [(12, 11), (12,), (12, 12, 1)])
def test_matrix_that_is_not_square_is_refused(batch, shape):
    with pytest.raises(ValueError, match=r"square matrix .* shape=\(12"):
        LogRatioLoss("precomputed")(np.ones(shape), batch[1])


def test_function_that_returns_no_square_matrix_is_refused(batch):
    with pytest.raises(ValueError, match=r"square matrix .* shape=\(12,\)"):
        LogRatioLoss(lambda a, b: a[:, 0] - b[:, 0])(*batch)


def test_negative_label_distances_are_refused(batch):
    with pytest.raises(ValueError, match=r"at least 0\. Received: -1"):
        LogRatioLoss("precomputed")(np.full((12, 12), -1.0), batch[1])


@pytest.mark.skipif(BACKEND == "torch", reason="nothing is compiled: it is refused")
def test_negative_label_distances_make_the_loss_of_fit_nan(batch):
    model = small_model()
    model.compile("sgd", loss=LogRatioLoss("precomputed"))
    targets = squared(batch[0])
    targets[2, 5] = -1.0
    assert np.isnan(model.train_on_batch(batch[1], targets))


def test_one_number_for_labels_is_refused(batch):
    with pytest.raises(ValueError, match="a scalar"):
        LogRatioLoss()(1.0, batch[1])


@pytest.mark.parametrize(
    ("function", "shape"), [(segmentation_distance, (3,)), (caption_distance, (3,))]
)
def test_labels_of_a_wrong_rank_are_refused(function, shape):
    with pytest.raises(ValueError, match=r"Received: shape=\(3,\)"):
        function(np.ones(shape), np.ones(shape))
