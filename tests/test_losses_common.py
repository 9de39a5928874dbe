"""What holds for every loss, tested once over all of them."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.autodiff import BACKEND, value_and_gradient
from tfdml import losses
from tfdml.losses import TopKPrecisionLoss
from tfdml.metrics import MisplacedPairs

pytestmark = pytest.mark.backend

LOSSES = [
    TopKPrecisionLoss(),
    TopKPrecisionLoss(k=30, margin=0.3),
]
SLOW_LOSSES = [
    losses.AngularLoss(),
    losses.BinomialDevianceLoss(),
    losses.CircleLoss(),
    losses.ContrastiveLoss(),
    losses.CosineContrastiveLoss(),
    losses.DistanceWeightedTripletLoss(),
    losses.GeneralizedLiftedStructureLoss(),
    losses.HardTripletLoss(),
    losses.HistogramLoss(),
    losses.LiftedStructureLoss(),
    losses.MarginLoss(),
    losses.MultiSimilarityLoss(),
    losses.NCALoss(),
    losses.NPairLoss(normalize=True),
    losses.NTXentLoss(),
    losses.SemiHardTripletLoss(),
    losses.SupervisedContrastiveLoss(),
    losses.TripletLoss(),
]
# By their definition these cost something where one kind of pair is missing.
ONE_SIDED = (
    losses.BinomialDevianceLoss,
    losses.ContrastiveLoss,
    losses.CosineContrastiveLoss,
    losses.MarginLoss,
    losses.SupervisedContrastiveLoss,
)
all_losses = pytest.mark.parametrize(
    "loss",
    [
        *LOSSES,
        *(pytest.param(loss, marks=pytest.mark.slow) for loss in SLOW_LOSSES),
    ],
    ids=lambda loss: f"{type(loss).__name__}{getattr(loss, 'k', '')}",
)


@pytest.fixture
def batch():
    generator = np.random.default_rng(7)
    labels = np.repeat([3, 5, 8, 9], 4)
    centres = generator.normal(size=(10, 6))
    embeddings = centres[labels] + generator.normal(size=(16, 6))
    return labels, embeddings.astype("float32")


def value(loss, labels, embeddings):
    return float(loss(labels, embeddings))


def rebuilt(loss, **changes):
    return type(loss).from_config({**loss.get_config(), **changes})


@all_losses
def test_order_of_the_batch_changes_nothing(loss, batch):
    labels, embeddings = batch
    order = np.random.default_rng(1).permutation(len(labels))
    assert value(loss, labels[order], embeddings[order]) == pytest.approx(
        value(loss, labels, embeddings), rel=1e-5
    )


@all_losses
def test_names_of_the_classes_change_nothing(loss, batch):
    labels, embeddings = batch
    assert value(loss, 1000 - 7 * labels, embeddings) == value(loss, labels, embeddings)


@all_losses
def test_rotation_of_the_embeddings_changes_nothing(loss, batch):
    labels, embeddings = batch
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(6, 6)))[0]
    rotated = (embeddings @ rotation).astype("float32")
    assert value(loss, labels, rotated) == pytest.approx(
        value(loss, labels, embeddings), rel=1e-5
    )


@all_losses
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize(
    ("case", "labels", "change"),
    [
        ("no positives", np.arange(16), lambda x: x),
        ("no negatives", np.zeros(16, int), lambda x: x),
        ("equal rows", np.repeat([0, 1], 8), np.ones_like),
        ("zero rows", np.repeat([0, 1], 8), np.zeros_like),
        ("huge rows", np.repeat([0, 1], 8), lambda x: x * np.float32(1e30)),
        ("tiny rows", np.repeat([0, 1], 8), lambda x: x * np.float32(1e-30)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_hard_batches_give_finite_values_and_gradients(
    loss, batch, case, labels, change, compiled
):
    loss_value, gradient = value_and_gradient(
        lambda x: loss(labels, x), change(batch[1]), compiled=compiled
    )
    assert np.isfinite(loss_value)
    assert np.all(np.isfinite(gradient))
    if case in ("no positives", "no negatives") and not isinstance(loss, ONE_SIDED):
        assert loss_value == 0
        assert not gradient.any()


@all_losses
def test_anchor_without_positive_adds_no_loss(loss, batch):
    labels, embeddings = batch
    labels = np.append(labels, 77)
    alone = np.append(embeddings, [[1, 0, 0, 0, 0, 0]], axis=0).astype("float32")
    values = ops.convert_to_numpy(rebuilt(loss, reduction=None)(labels, alone))
    assert values[-1] == 0 or isinstance(loss, ONE_SIDED)


@all_losses
def test_mean_over_the_batch_is_the_reduced_value(loss, batch):
    values = ops.convert_to_numpy(rebuilt(loss, reduction=None)(*batch))
    assert values.shape == (16,)
    assert value(loss, *batch) == pytest.approx(values.mean(), rel=1e-6)


@all_losses
def test_sample_weights_weight_the_anchors(loss, batch):
    values = ops.convert_to_numpy(rebuilt(loss, reduction=None)(*batch))
    weights = np.linspace(0, 1, 16, dtype="float32")
    weighted = float(loss(*batch, sample_weight=weights))
    assert weighted == pytest.approx((weights * values).sum() / 16, rel=1e-5)


@all_losses
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
@pytest.mark.parametrize("shape", [(16,), (16, 1)])
def test_labels_may_be_of_any_whole_type_and_a_column(loss, batch, dtype, shape):
    labels, embeddings = batch
    assert value(loss, labels.astype(dtype).reshape(shape), embeddings) == value(
        loss, labels, embeddings
    )


@all_losses
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_large_class_ids_stay_apart(loss, batch, dtype):
    _, embeddings = batch
    small = np.repeat([0, 1], 8)
    large = small + 2**24  # float32 cannot tell these apart
    typed = rebuilt(loss, dtype=dtype)
    assert value(typed, large, embeddings) == value(typed, small, embeddings)


@all_losses
def test_config_round_trip_keeps_every_argument(loss):
    changed = rebuilt(loss, dtype="float16", name="mine", reduction="sum")
    again = rebuilt(changed)
    assert again.get_config() == changed.get_config()
    assert again.dtype == "float16"


def small_model():
    inputs = keras.Input((6,))
    return keras.Model(inputs, keras.layers.Dense(4)(inputs))


@all_losses
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("shape", "dtype"), [((16,), "int32"), ((16, 1), "int64")])
def test_fit_trains(loss, batch, jit_compile, shape, dtype):
    labels, inputs = batch
    labels = labels.astype(dtype).reshape(shape)
    model = small_model()
    model.compile("adam", loss=loss, jit_compile=jit_compile)
    before = [w.copy() for w in model.get_weights()]
    expected = value(loss, labels, model.predict(inputs, verbose=0))
    history = model.fit(inputs, labels, batch_size=16, epochs=1, verbose=0)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    if expected:
        assert any(
            np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)
        )


def test_fit_tells_large_class_ids_apart(batch):
    _, inputs = batch
    losses = []
    for offset in (0, 2**24):
        keras.utils.set_random_seed(1)
        model = small_model()
        model.compile("sgd", loss=TopKPrecisionLoss())
        labels = np.repeat([0, 1], 8) + offset
        history = model.fit(inputs, labels, batch_size=16, verbose=0)
        losses.append(history.history["loss"][0])
    assert losses[0] == losses[1] > 0


def test_last_batch_of_one_row_adds_nothing(batch):
    labels, inputs = batch
    model = small_model()
    model.compile("sgd", loss=TopKPrecisionLoss())
    history = model.fit(inputs[:9], labels[:9], batch_size=8, verbose=0)
    assert np.isfinite(history.history["loss"][0])


@all_losses
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_model_trains(loss, batch, policy):
    labels, inputs = batch
    keras.config.set_dtype_policy(policy)
    try:
        model = small_model()
        model.compile("adam", loss=loss, jit_compile=True)
        history = model.fit(inputs, labels, batch_size=16, epochs=2, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert np.all(np.isfinite(history.history["loss"]))
    assert all(np.all(np.isfinite(w)) for w in model.get_weights())


def test_fit_shows_the_number_of_misplaced_pairs(batch):
    labels, inputs = batch
    model = small_model()
    metric = MisplacedPairs(k=3, margin=0.2)
    model.compile("sgd", loss=TopKPrecisionLoss(3, 0.2), metrics=[metric])
    embeddings = model.predict(inputs, verbose=0)
    history = model.fit(inputs, labels, batch_size=16, verbose=0)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    same = labels[:, None] == labels[None]
    itself = np.eye(16, dtype=bool)
    counts = TopKPrecisionLoss(3, 0.2).misplaced_pairs(
        (unit @ unit.T).astype("float32"), same & ~itself, ~same
    )
    expected = ops.convert_to_numpy(counts).mean()
    assert 0 < expected == pytest.approx(history.history["misplaced_pairs"][0])
    again = MisplacedPairs.from_config(metric.get_config())
    assert again.get_config() == metric.get_config()


@all_losses
def test_compiled_model_is_saved_and_loaded_with_the_loss(loss, batch, tmp_path):
    labels, inputs = batch
    model = small_model()
    model.compile("sgd", loss=loss, metrics=[MisplacedPairs()])
    model.fit(inputs, labels, batch_size=16, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    expected = model.evaluate(inputs, labels, batch_size=16, verbose=0)
    received = loaded.evaluate(inputs, labels, batch_size=16, verbose=0)
    assert received == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(6,), (4, 3, 2)])
def test_embeddings_that_are_no_matrix_are_refused(shape):
    with pytest.raises(ValueError, match=r"\[batch, dimension\].*shape=\("):
        TopKPrecisionLoss()(np.zeros(4, int), np.zeros(shape, "float32"))


def test_labels_of_another_length_are_refused(batch):
    with pytest.raises(ValueError, match="5 labels and 16 embeddings"):
        TopKPrecisionLoss()(np.zeros(5, int), batch[1])


def test_one_hot_labels_are_refused(batch):
    with pytest.raises(ValueError, match=r"one-hot.*shape=\(16, 3\)"):
        TopKPrecisionLoss()(np.zeros((16, 3), int), batch[1])


def test_labels_with_fractions_are_refused(batch):
    labels = np.linspace(0, 1, 16)
    with pytest.raises(ValueError, match=r"whole numbers.*Received: 0\.0666"):
        TopKPrecisionLoss()(labels, batch[1])


def test_batch_of_one_is_refused():
    with pytest.raises(ValueError, match="at least 2 rows"):
        TopKPrecisionLoss()(np.array([1]), np.ones((1, 4), "float32"))


def test_library_needs_neither_scann_nor_serving():
    import subprocess
    import sys

    code = (
        "import sys, tfdml.losses, tfdml.layers, tfdml.metrics, tfdml.embedder\n"
        "bad = {'scann', 'starlette', 'grpc', 'tensorflow_serving', 'tfdml.images'}\n"
        "if not sys.argv[1] == 'tensorflow': bad |= {'tensorflow'}\n"
        "found = bad & set(sys.modules)\n"
        "sys.exit(f'imported {found}' if found else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, BACKEND], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
