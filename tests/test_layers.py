"""Unit length in float32, and colour preprocessing as a layer."""

import keras
import numpy as np
import pytest
from keras import ops

from tfdml.layers import ColorTransform, L2Normalization

pytestmark = pytest.mark.backend


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_normalization_is_float32_under_every_policy(policy):
    keras.config.set_dtype_policy(policy)
    try:
        inputs = keras.Input((4,))
        model = keras.Model(inputs, L2Normalization()(inputs))
    finally:
        keras.config.set_dtype_policy("float32")
    # Keras' own layer makes NaN, inf and zeros of these in float16.
    rows = np.array([[0, 0, 0, 0], [1e-4] * 4, [100.0] * 4, [3, 4, 0, 0]], "float16")
    received = model.predict(rows, verbose=0)
    assert received.dtype == "float32"
    expected = [[0] * 4, [0.5] * 4, [0.5] * 4, [0.6, 0.8, 0, 0]]
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_color_transform_maps_each_pixel():
    layer = ColorTransform([[0, 0, 1], [0, 1, 0], [1, 0, 0]], [-1, -2, -3])
    pictures = np.array([[[[10.0, 20.0, 30.0]]]], "float32")
    assert numpy(layer(pictures)).ravel().tolist() == [29, 18, 7]


def test_color_transform_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\[3, 3\].*\(2, 2\)"):
        ColorTransform(np.eye(2), np.zeros(3))


@pytest.mark.parametrize(
    "layer",
    [L2Normalization(name="n"), ColorTransform(np.eye(3) / 7, [1, 2, 3], name="c")],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_are_saved_with_a_model(layer, tmp_path):
    inputs = keras.Input((2, 2, 3))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(2, 2, 2, 3)).astype("float32")
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )
    assert loaded.layers[-1].get_config() == layer.get_config()
