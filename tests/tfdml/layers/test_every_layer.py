"""What holds for every layer, tested once over all."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import JIT, differentiated, slow_on_jax
from tfdml.layers import (
    CenterRegularizer,
    ClassBoundaries,
    ColorTransform,
    DividedEmbedding,
    GeMPooling,
    JoinedHeads,
    L2Normalization,
    Proxies,
    ScaleAndBias,
)

pytestmark = pytest.mark.backend

ROWS, IMAGES = (6,), (2, 3, 3)
LAYERS = {
    "ClassBoundaries": (lambda: ClassBoundaries(4, 1.0, 5.0), ROWS),
    "ColorTransform": (lambda: ColorTransform(np.eye(3) / 7, [1, 2, 3]), IMAGES),
    "DividedEmbedding": (lambda: DividedEmbedding([2, 3], diversity=0.5), ROWS),
    "DividedEmbedding-adversary": (
        lambda: DividedEmbedding([2, 3], diversity=0.5, adversary=4),
        ROWS,
    ),
    "GeMPooling": (lambda: GeMPooling(2.5, "shift"), IMAGES),
    "JoinedHeads": (lambda: JoinedHeads(2), ROWS),
    "L2Normalization": (L2Normalization, ROWS),
    "Proxies": (lambda: Proxies(5, learning_rate_multiplier=10.0), ROWS),
    "Proxies-prefixes": (lambda: Proxies(5, 2, dimensions=(2, 6)), ROWS),
    "Proxies-several": (
        lambda: Proxies(5, 3, regularizer=CenterRegularizer(0.3)),
        ROWS,
    ),
    "ScaleAndBias": (lambda: ScaleAndBias(5.0, -2.0), ROWS),
}
every_layer = pytest.mark.parametrize(
    ("make", "shape"),
    [pytest.param(*layer, id=name) for name, layer in LAYERS.items()],
)


def some(shape, rows=4):
    x = np.random.default_rng(0).uniform(0.1, 2, size=(rows, *shape))
    return x.astype("float32")


def model_of(make, shape):
    inputs = keras.Input(shape)
    return keras.Model(inputs, make()(inputs))


@every_layer
def test_config_round_trip_keeps_every_argument(make, shape):
    layer = make()
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    json.dumps(layer.get_config())


@every_layer
def test_output_is_of_the_shape_that_a_model_expects(make, shape):
    layer = make()
    received = layer(some(shape)).shape
    assert tuple(received) == tuple(layer.compute_output_shape((4, *shape)))
    symbolic = model_of(make, shape).output_shape
    assert symbolic == (None, *received[1:])


@every_layer
@pytest.mark.parametrize(
    "compiled", [pytest.param(c, marks=[] if c else slow_on_jax) for c in JIT]
)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_values_and_gradients_are_finite_at_any_scale(make, shape, compiled, scale):
    layer = make()
    x = some(shape) * np.float32(scale)
    layer.build((None, *shape))
    both = differentiated(lambda x: ops.sum(layer(x)), compiled=compiled)
    value, gradient = both(x)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@every_layer
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_layer_under_a_mixed_policy_is_that_of_float32(make, shape, policy):
    whole = model_of(make, shape)
    keras.config.set_dtype_policy(policy)
    try:
        mixed = model_of(make, shape)
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(whole.get_weights())
    received = mixed.predict(some(shape), verbose=0).astype("float32")
    expected = whole.predict(some(shape), verbose=0)
    np.testing.assert_allclose(received, expected, rtol=0.02, atol=0.02)


LOAD = """
import sys, keras, numpy as np
import tfdml
folder = sys.argv[1]
inputs = np.load(folder + "/inputs.npz")
outputs = {}
for name in inputs:
    model = keras.saving.load_model(f"{folder}/{name}.keras")
    outputs[name] = keras.ops.convert_to_numpy(model(inputs[name]))
np.savez(folder + "/outputs.npz", **outputs)
"""


@pytest.mark.slow
def test_models_are_loaded_in_a_fresh_process(tmp_path):
    models = {name: model_of(*layer) for name, layer in LAYERS.items()}
    inputs = {name: some(shape) for name, (_, shape) in LAYERS.items()}
    for name, model in models.items():
        model.save(tmp_path / f"{name}.keras")
    np.savez(tmp_path / "inputs.npz", **inputs)
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "outputs.npz") as outputs:
        for name, model in models.items():
            expected = ops.convert_to_numpy(model(inputs[name]))
            # A product near 0 of unit rows is the rest of terms that cancel out.
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-6, atol=1e-6)
