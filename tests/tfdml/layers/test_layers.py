"""Unit length in float32, and color preprocessing as a layer."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.autodiff import BACKEND, value_and_gradient
from tfdml.layers import ColorTransform, GeMPooling, L2Normalization

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
    images = np.array([[[[10.0, 20.0, 30.0]]]], "float32")
    assert numpy(layer(images)).ravel().tolist() == [29, 18, 7]


def test_color_transform_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\[3, 3\].*\(2, 2\)"):
        ColorTransform(np.eye(2), np.zeros(3))


@pytest.mark.parametrize(
    "layer",
    [
        L2Normalization(name="n"),
        ColorTransform(np.eye(3) / 7, [1, 2, 3], name="c"),
        GeMPooling(2.5, "shift", name="g"),
    ],
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


def generalized_mean(x, p):
    return (x**p).mean(axis=1) ** (1 / p)


@pytest.mark.parametrize("p", [0.5, 1.0, 3.0, 7.5])
def test_gem_pooling_is_the_generalized_mean_of_the_places(p):
    x = np.random.default_rng(0).uniform(0.1, 3, size=(2, 4, 5, 3)).astype("float32")
    expected = generalized_mean(x.reshape(2, 20, 3).astype("float64"), p)
    np.testing.assert_allclose(numpy(GeMPooling(p)(x)), expected, rtol=1e-5)


def test_gem_pooling_clips_or_shifts_what_is_not_above_zero():
    x = np.array([[[-2.0], [0.0], [4.0]]], "float32")
    clipped = np.array([[[1e-6], [1e-6], [4.0]]])
    np.testing.assert_allclose(
        numpy(GeMPooling()(x)), generalized_mean(clipped, 3), rtol=1e-5
    )
    shifted = generalized_mean(x.astype("float64") + 3, 3) - 3
    np.testing.assert_allclose(numpy(GeMPooling(3, "shift")(x)), shifted, rtol=1e-5)


def test_gem_pooling_has_the_slopes_of_its_definition():
    x = np.random.default_rng(1).uniform(0.1, 2, size=(1, 6, 1))
    layer = GeMPooling(3.0, dtype="float64")
    _, gradient = value_and_gradient(
        lambda x: ops.sum(layer(x)), x, compiled=BACKEND == "jax"
    )
    mean = generalized_mean(x, 3)
    np.testing.assert_allclose(gradient, x**2 / 6 / mean**2, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_gem_pooling_of_small_and_huge_maps_is_finite(scale):
    x = np.full((1, 4, 2), scale, "float32")
    value, gradient = value_and_gradient(
        lambda x: ops.sum(GeMPooling()(x)), x, compiled=BACKEND == "jax"
    )
    assert value == pytest.approx(2 * max(scale, 1e-6), rel=1e-5)
    assert np.all(np.isfinite(gradient))


def test_gem_pooling_trains_its_exponent_in_half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        inputs = keras.Input((4, 4, 2))
        model = keras.Model(inputs, GeMPooling()(inputs))
    finally:
        keras.config.set_dtype_policy("float32")
    x = np.random.default_rng(0).uniform(0, 100, size=(8, 4, 4, 2))  # 100^3 > 65504
    model.compile(keras.optimizers.SGD(1e-3), loss="mse")
    # The maximum is aimed at: the exponent must grow.
    history = model.fit(x, x.max(axis=(1, 2)), epochs=3, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))
    assert 3.0 < float(model.layers[-1].p) < np.inf


def test_gem_pooling_passes_nan():
    x = np.ones((1, 3, 2), "float32")
    x[0, 1, 0] = np.nan
    assert np.isnan(numpy(GeMPooling()(x))).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 0}, "`p` must be above 0 and finite. Received: p=0"),
        ({"p": 1e-3}, "`p` must be from 0.01 to 10000. Received: p=0.001"),
        ({"negative": "abs"}, "`negative` must be one of clip, shift"),
    ],
)
def test_impossible_gem_pooling_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GeMPooling(**arguments)


def test_gem_pooling_of_a_row_is_refused():
    with pytest.raises(ValueError, match=r"at least 3 axes.*shape=\(2, 3\)"):
        GeMPooling()(np.ones((2, 3), "float32"))
