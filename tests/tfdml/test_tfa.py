"""The losses of tensorflow-addons: its numbers, its files, and where it was wrong."""

import functools
import io
import json
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import value_and_gradient
from tests.support.golden_cases import assert_computes
from tests.support.refuses import refuses
from tfdml import tfa

pytestmark = [pytest.mark.backend, pytest.mark.slow]

GOLDENS = Path(__file__).parents[1] / "goldens"
BATCHES = ["balanced", "unnormalised", "with_singletons", "duplicates"]
METRICS = ["L2", "squared-L2", "angular"]


@functools.cache
def goldens():
    numbers = json.loads((GOLDENS / "golden_tfa023.json").read_text(encoding="utf-8"))
    with np.load(GOLDENS / "golden_tfa023.npz") as arrays:
        return numbers, dict(arrays)


def batch_of(name):
    _, arrays = goldens()
    return arrays[f"{name}/y"], arrays[f"{name}/x"]


def assert_equals_golden(name, function, batch):
    numbers, arrays = goldens()
    value = numbers[f"{batch}|{name}"]["loss"]
    gradient = arrays[f"{batch}|{name}/grad"]
    assert_computes(function, batch_of(batch)[1], value, gradient, 2e-5)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("margin", [1.0, 0.2])
def test_semi_hard_loss_equals_tensorflow_addons(batch, metric, margin):
    labels, _ = batch_of(batch)
    loss = tfa.TripletSemiHardLoss(margin, metric)
    name = f"TripletSemiHard(margin={margin},{metric})"
    assert_equals_golden(name, lambda x: loss(labels, x), batch)


HARD = [(1.0, False), (0.2, False), (1.0, True)]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("margin", "soft"), HARD)
def test_hard_loss_equals_tensorflow_addons(batch, metric, margin, soft):
    name = f"TripletHard(margin={margin},soft={soft},{metric})"
    numbers, _ = goldens()
    labels, x = batch_of(batch)
    loss = tfa.TripletHardLoss(margin, soft, metric)
    if not np.isfinite(numbers[f"{batch}|{name}"]["loss"]):
        value, gradient = value_and_gradient(lambda x: loss(labels, x), x)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))
        return
    values = tfa.TripletHardLoss(margin, soft, metric, reduction=None)

    def function(x):
        # tensorflow-addons gives a lone anchor a positive at distance 0.
        lone = np.bincount(labels)[labels] == 1
        distances = tfa._METRICS[metric](x)
        other = labels[:, None] != labels
        nearest = ops.min(ops.where(other, distances, np.inf), axis=1)
        wrong = ops.softplus(-nearest) if soft else ops.relu(margin - nearest)
        # On JAX `ops.mean` computes in float32 (Keras 3.15).
        return ops.sum(ops.where(lone, wrong, values(labels, x))) / len(labels)

    assert_equals_golden(name, function, batch)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("margin", [1.0, 0.5])
def test_lifted_loss_equals_tensorflow_addons(batch, margin):
    labels, _ = batch_of(batch)
    loss = tfa.LiftedStructLoss(margin)
    name = f"LiftedStruct(margin={margin})"
    assert_equals_golden(name, lambda x: loss(labels, x), batch)


@pytest.mark.parametrize("batch", BATCHES)
def test_npairs_loss_equals_tensorflow_addons(batch):
    labels, _ = batch_of(batch)
    loss = tfa.NpairsLoss()
    assert_equals_golden(
        "Npairs(x@x.T)", lambda x: loss(labels, ops.matmul(x, ops.transpose(x))), batch
    )


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("margin", [1.0, 0.5])
@pytest.mark.parametrize("column", [False, True])
def test_contrastive_loss_equals_tensorflow_addons(batch, margin, column):
    labels, _ = batch_of(batch)
    alike = (labels[0::2] == labels[1::2]).astype(int)
    loss = tfa.ContrastiveLoss(margin)

    def function(x):
        # The distance of the golden numbers, which has a gradient at equal rows.
        squared = ops.square(x[0::2] - x[1::2] + 1e-12)
        return loss(alike, ops.sqrt(ops.sum(squared, axis=1, keepdims=column)))

    name = f"Contrastive(margin={margin}; pairs x[0::2],x[1::2]; y=1 same)"
    assert_equals_golden(name, function, batch)


TRIPLETS = [
    *(tfa.TripletSemiHardLoss(distance_metric=metric) for metric in METRICS),
    *(tfa.TripletHardLoss(distance_metric=metric) for metric in METRICS),
    tfa.TripletHardLoss(soft=True),
    tfa.LiftedStructLoss(),
]


@pytest.mark.parametrize("loss", TRIPLETS, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("labels", [np.arange(8), np.zeros(8, int)])
def test_batch_without_both_kinds_has_no_loss(loss, labels):
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    value, gradient = value_and_gradient(lambda x: loss(labels, x), x)
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_every_float_type_is_taken_and_large_labels_stay_apart(dtype):
    """tensorflow-addons merged 4096 to 4099 in float16 and refused float64."""
    logits = ops.cast(8 * np.eye(4), dtype)
    small = tfa.NpairsLoss()(np.arange(4), logits)
    large = tfa.NpairsLoss()(np.arange(4) + 4096, logits)
    assert float(small) == float(large) < 0.02


@pytest.mark.parametrize(
    "loss_class",
    [
        tfa.TripletSemiHardLoss,
        tfa.TripletHardLoss,
        tfa.LiftedStructLoss,
        tfa.NpairsLoss,
        tfa.ContrastiveLoss,
    ],
)
def test_reduction_is_followed_and_kept(loss_class):
    loss = loss_class(reduction=None, name="mine")
    labels, x = np.repeat([0, 1], 4), np.random.default_rng(0).normal(size=(8, 8))
    if loss_class is tfa.ContrastiveLoss:
        x = x[:, 0]
    assert loss(labels, x).shape == (8,)
    again = loss_class.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()
    assert again(labels, x).shape == (8,)


@keras.saving.register_keras_serializable(package="test_tfa")
def manhattan(x):
    x = ops.convert_to_tensor(x)
    return ops.sum(ops.abs(ops.expand_dims(x, 1) - x), axis=2)


@pytest.mark.parametrize("loss_class", [tfa.TripletSemiHardLoss, tfa.TripletHardLoss])
def test_function_as_metric_is_used_and_saved(loss_class, tmp_path):
    loss = loss_class(distance_metric=manhattan)
    labels, x = np.repeat([0, 1], 4), np.random.default_rng(0).normal(size=(8, 4))
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", loss=loss)
    expected = model.evaluate(x, labels, verbose=0)
    distances = manhattan(model.predict(x, verbose=0))
    rule = loss_class(distance_metric=lambda _: distances)
    assert expected == pytest.approx(float(rule(labels, x)), rel=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, labels, verbose=0) == pytest.approx(expected)


OLD_LOSSES = [
    (
        "TripletSemiHardLoss",
        {"reduction": "none", "name": None, "margin": 0.7, "distance_metric": "L2"},
    ),
    (
        "TripletHardLoss",
        {
            "reduction": "none",
            "name": None,
            "margin": 0.7,
            "soft": True,
            "distance_metric": "angular",
        },
    ),
    ("LiftedStructLoss", {"reduction": "none", "name": None, "margin": 0.7}),
    ("NpairsLoss", {"reduction": "none", "name": "npairs_loss"}),
    (
        "ContrastiveLoss",
        {"reduction": "auto", "name": "contrastive_loss", "margin": 0.7},
    ),
]


def old_model(units=3):
    """A model of one layer as Keras 2.15 describes it, and its weights."""
    dense = {
        "name": "dense",
        "trainable": True,
        "dtype": "float32",
        "units": units,
        "activation": "linear",
        "use_bias": True,
        "kernel_initializer": {"class_name": "GlorotUniform", "config": {"seed": None}},
        "bias_initializer": {"class_name": "Zeros", "config": {}},
        "kernel_regularizer": None,
        "bias_regularizer": None,
        "activity_regularizer": None,
        "kernel_constraint": None,
        "bias_constraint": None,
    }
    first = {
        "batch_input_shape": [None, 4],
        "dtype": "float32",
        "sparse": False,
        "ragged": False,
        "name": "dense_input",
    }
    layers = [("InputLayer", first), ("Dense", dense)]
    kernel = np.arange(4.0 * units).reshape(4, units).astype("float32")
    return layers, kernel, np.ones(units, "float32")


def write_old_keras_file(path, name, config):
    """Write what Keras 2.15 writes in `model.save("model.keras")`."""
    layers, kernel, bias = old_model()
    with_module = {"module": "keras.initializers", "registered_name": None}
    for _, layer in layers:
        for key in layer:
            if key.endswith("_initializer"):
                layer[key].update(with_module)
    described = [
        {
            "module": "keras.layers",
            "class_name": kind,
            "config": layer,
            "registered_name": None,
            "build_config": {"input_shape": [None, 4]},
        }
        for kind, layer in layers
    ]
    model = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "sequential", "layers": described},
        "registered_name": None,
        "build_config": {"input_shape": [None, 4]},
        "compile_config": {
            "optimizer": "sgd",
            "loss": {
                "module": "tensorflow_addons.losses",
                "class_name": name,
                "config": config,
                "registered_name": f"Addons>{name}",
            },
            "metrics": None,
            "loss_weights": None,
            "weighted_metrics": None,
            "run_eagerly": None,
            "steps_per_execution": None,
            "jit_compile": None,
        },
    }
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        group = file.create_group("layers/dense/vars")
        group["0"], group["1"] = kernel, bias
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(model))
        metadata = {"keras_version": "2.15.0", "date_saved": "2024-01-01@00:00:00"}
        archive.writestr("metadata.json", json.dumps(metadata))
        archive.writestr("model.weights.h5", weights.getvalue())


def write_old_h5_file(path, name, config):
    """Write what Keras 2.15 writes in `model.save("model.h5")`."""
    layers, kernel, bias = old_model()
    model = {
        "class_name": "Sequential",
        "config": {
            "name": "sequential",
            "layers": [{"class_name": c, "config": layer} for c, layer in layers],
        },
    }
    training = {
        "loss": {"class_name": f"Addons>{name}", "config": config},
        "metrics": None,
        "weighted_metrics": None,
        "loss_weights": None,
        "optimizer_config": {
            "class_name": "SGD",
            "config": {"name": "SGD", "learning_rate": 0.01, "momentum": 0.0},
        },
    }
    with h5py.File(path, "w") as file:
        file.attrs["backend"] = "tensorflow"
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["model_config"] = json.dumps(model)
        file.attrs["training_config"] = json.dumps(training)
        weights = file.create_group("model_weights")
        weights.attrs["backend"] = "tensorflow"
        weights.attrs["keras_version"] = "2.15.0"
        weights.attrs["layer_names"] = np.array([b"dense"])
        dense = weights.create_group("dense")
        dense.attrs["weight_names"] = np.array([b"dense/kernel:0", b"dense/bias:0"])
        dense["dense/kernel:0"], dense["dense/bias:0"] = kernel, bias


@pytest.mark.parametrize(
    ("ending", "write"), [("keras", write_old_keras_file), ("h5", write_old_h5_file)]
)
@pytest.mark.parametrize(("name", "config"), OLD_LOSSES, ids=lambda x: str(x)[:20])
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # of Keras, on old files
def test_old_file_loads_with_its_loss(name, config, ending, write, tmp_path):
    write(tmp_path / f"model.{ending}", name, config)
    model = keras.saving.load_model(tmp_path / f"model.{ending}")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    _, kernel, bias = old_model()
    # Keras 3.15 keeps the null that Keras 2.15 writes for `steps_per_execution`.
    model.steps_per_execution = 1
    outputs = model.predict(x, verbose=0)
    np.testing.assert_allclose(outputs, x @ kernel + bias, rtol=1e-5)
    loss = model.loss
    assert type(loss) is getattr(tfa, name)
    assert loss.reduction == "sum_over_batch_size"
    assert getattr(loss, "margin", 0.7) == 0.7
    for key in ("soft", "distance_metric"):
        assert getattr(loss, key, None) == config.get(key)
    if name != "ContrastiveLoss":  # whose outputs would be distances
        labels = np.array([5, 5, 6])
        received = model.evaluate(x, labels, verbose=0)
        assert received == pytest.approx(float(loss(labels, outputs)), rel=1e-5)
        model.fit(x, labels, verbose=0)


def test_margin_below_zero_is_refused():
    rule = "must be at least 0 and finite"
    refuses(tfa.ContrastiveLoss, argument="margin", value=-1, rule=rule)


def test_embeddings_where_similarities_belong_are_refused():
    with pytest.raises(ValueError, match=r"square matrix.*shape=\(4, 3\)"):
        tfa.NpairsLoss()(np.arange(4), np.zeros((4, 3), "float32"))
