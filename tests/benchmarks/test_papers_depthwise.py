import keras
import numpy as np
import pytest

from benchmarks.papers.depthwise import (
    ShiftedDepthwiseConv2D,
    shifted_products,
    with_shifted_products,
)
from tests.support.autodiff import value_and_gradient
from tfdml.models import build_embedder

pytestmark = pytest.mark.backend


def convolved(images, kernel, strides, padding):
    return keras.ops.depthwise_conv(
        images, kernel, strides, padding, data_format="channels_last"
    )


@pytest.mark.parametrize(
    ("padding", "strides", "sides"),
    [
        ("valid", (1, 1), (6, 7)),
        ("valid", (2, 2), (6, 7)),
        ("same", (1, 1), (3, 3)),
        ("same", (2, 2), (6, 7)),
    ],
)
def test_sum_of_shifted_products_is_the_convolution(padding, strides, sides):
    generator = np.random.default_rng(0)
    images = generator.normal(size=(2, *sides, 4))
    kernel = generator.normal(size=(3, 3, 4, 1))

    def of_images(function):
        return lambda x: keras.ops.sum(function(x, kernel, strides, padding) ** 2)

    def of_kernel(function):
        return lambda x: keras.ops.sum(function(images, x, strides, padding) ** 2)

    for of, x in ((of_images, images), (of_kernel, kernel)):
        value, gradient = value_and_gradient(of(shifted_products), x, compiled=True)
        expected, slopes = value_and_gradient(of(convolved), x, compiled=True)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_network_computes_the_same_with_its_own_weights():
    embedder = build_embedder(32, 8, backbone="MobileNet")
    changed = with_shifted_products(embedder)
    of_mobilenet = changed.get_layer("mobilenet_1.00_32").layers
    shifted = [isinstance(layer, ShiftedDepthwiseConv2D) for layer in of_mobilenet]
    assert sum(shifted) == 13
    assert changed.get_layer("dense").trainable_weights
    images = 255 * np.random.default_rng(0).random((3, 32, 32, 3), "float32")
    expected, found = embedder(images), changed(images)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    changed.get_layer("dense").kernel.assign_add([[1.0] * 8] * 1024)
    np.testing.assert_array_equal(embedder(images), expected)


@pytest.mark.parametrize(
    "options", [{"use_bias": True}, {"depth_multiplier": 2}, {"dilation_rate": 2}]
)
def test_layers_that_do_more_stay_as_they_are(options):
    images = keras.Input((8, 8, 3))
    options = {"use_bias": False} | options
    layer = keras.layers.DepthwiseConv2D(3, name="depthwise", **options)
    changed = with_shifted_products(keras.Model(images, layer(images)))
    assert type(changed.get_layer("depthwise")) is keras.layers.DepthwiseConv2D


@pytest.mark.slow
@pytest.mark.parametrize(
    "tuning", [pytest.param("lora", marks=pytest.mark.full), "frozen"]
)
def test_copy_trains_what_the_network_trains(tuning):
    more = {"lora_layers": "all"} if tuning == "lora" else {}
    embedder = build_embedder(32, 8, backbone="MobileNet", tuning=tuning, **more)
    changed = with_shifted_products(embedder)
    trained = [weight.trainable for weight in embedder.weights]
    assert [weight.trainable for weight in changed.weights] == trained
    shapes = [tuple(weight.shape) for weight in embedder.trainable_weights]
    assert [tuple(weight.shape) for weight in changed.trainable_weights] == shapes
    images = 255 * np.random.default_rng(0).random((3, 32, 32, 3), "float32")
    np.testing.assert_allclose(changed(images), embedder(images), atol=1e-5)
