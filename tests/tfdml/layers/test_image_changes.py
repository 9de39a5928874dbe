"""Images changed by given numbers, against loops over pixels and Keras' layers."""

import colorsys
import dataclasses
import json
import math

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.support.autodiff import BACKEND, JIT, slow_on_jax
from tfdml.images import RandomChanges
from tfdml.layers import ImageChanges

pytestmark = pytest.mark.backend

ALL = RandomChanges(0.3, 0.2, 20, True, 0.25, 0.4, 0.8, 0.1, 0.5)
SHAPE = RandomChanges(zoom=0.3, shift=0.2, rotation=20, flip=True)
COLOR = RandomChanges(brightness=0.2, contrast=0.4, saturation=0.8, hue=0.3)
compiled_or_not = pytest.mark.parametrize(
    "compiled", [pytest.param(c, marks=[] if c else slow_on_jax) for c in JIT]
)
WHITE = {"fill_mode": "constant", "fill_value": 255.0}


def some_images(batch=4, height=9, width=12):
    shape = (batch, height, width, 3)
    return np.random.default_rng(0).integers(0, 256, shape).astype("uint8")


def numbers_of(count, **columns):
    """Neutral numbers but for some columns."""
    numbers = RandomChanges().numbers(0, 0, count)
    for name, values in columns.items():
        numbers[:, RandomChanges.COLUMNS.index(name)] = values
    return numbers


def changed(changes, images, numbers, compiled=BACKEND == "jax"):
    """Return the changed images. (JAX compiles each step by itself, or all in one.)"""
    layer = ImageChanges(changes)
    if not compiled:
        return ops.convert_to_numpy(layer([images, numbers]))
    if BACKEND == "jax":
        import jax

        call = jax.jit(lambda *x: layer(list(x)))
        return np.asarray(call(images, numbers))
    import tensorflow as tf

    return tf.function(lambda *x: layer(list(x)), jit_compile=True)(
        tf.constant(images), tf.constant(numbers)
    ).numpy()


def place_before(x, y, of, height, width):
    """Return where a pixel was, as x and y, undoing the changes from the last on."""
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    if of["flip"]:
        x = width - 1 - x
    angle = math.radians(of["rotation"])
    x, y = x - middle_x, y - middle_y
    x, y = (
        middle_x + math.cos(angle) * x - math.sin(angle) * y,
        middle_y + math.sin(angle) * x + math.cos(angle) * y,
    )
    x, y = x - of["shift_width"] * width, y - of["shift_height"] * height
    return (
        middle_x + of["zoom_width"] * (x - middle_x),
        middle_y + of["zoom_height"] * (y - middle_y),
    )


def pixel_at(image, row, column):
    inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
    return image[row, column].astype("float64") if inside else np.full(3, 255.0)


def by_loops(image, numbers):
    of = dict(zip(RandomChanges.COLUMNS, numbers.astype("float64"), strict=True))
    height, width = image.shape[:2]
    moved = np.empty(image.shape)
    for row in range(height):
        for column in range(width):
            x, y = place_before(column, row, of, height, width)
            left, top = math.floor(x), math.floor(y)
            moved[row, column] = sum(
                (1 - abs(x - c)) * (1 - abs(y - r)) * pixel_at(image, r, c)
                for r in (top, top + 1)
                for c in (left, left + 1)
            )
    bright = np.clip(moved + 255 * of["brightness"], 0, 255)
    mean = bright.mean(axis=(0, 1))
    contrasted = np.clip(mean + of["contrast"] * (bright - mean), 0, 255)
    return np.apply_along_axis(colored, 2, contrasted, of)


def colored(pixel, of):
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel / 255)
    hue, saturation = (hue + of["hue"]) % 1, saturation * of["saturation"]
    red, green, blue = 255 * np.array(colorsys.hsv_to_rgb(hue, saturation, value))
    if of["grayscale"]:
        return np.full(3, 0.2989 * red + 0.5870 * green + 0.1140 * blue)
    return np.array([red, green, blue])


@compiled_or_not
def test_changes_are_those_of_a_loop_over_pixels(compiled):
    images, numbers = some_images(8), ALL.numbers(0, 7, 8)
    expected = [by_loops(*each) for each in zip(images, numbers, strict=True)]
    received = changed(ALL, images, numbers, compiled)
    assert received.dtype == "float32"
    np.testing.assert_allclose(received, expected, rtol=0, atol=2e-3)
    assert received.min() >= 0
    assert received.max() <= 255


def by_keras(layer, images, **transformation):
    tensors = {k: ops.convert_to_tensor(v) for k, v in transformation.items()}
    images = ops.convert_to_tensor(images.astype("float32"))
    return ops.convert_to_numpy(layer.transform_images(images, tensors))


def keras_flip(images):
    choices = np.arange(4) < 2
    layer = layers.RandomFlip("horizontal")
    expected = by_keras(layer, images, flips=choices.reshape(-1, 1, 1, 1))
    return RandomChanges(flip=True), numbers_of(4, flip=choices), expected


def keras_zoom(images):
    high, wide = np.float32([[0.7, 1, 1.4, 1.9], [1.2, 0.6, 1, 1.5]])
    layer = layers.RandomZoom(0.9, 0.9, **WHITE)
    zooms = {"height_zoom": high[:, None], "width_zoom": wide[:, None]}
    numbers = numbers_of(4, zoom_height=high, zoom_width=wide)
    return RandomChanges(zoom=0.9), numbers, by_keras(layer, images, **zooms)


def keras_shift(images):
    down, right = np.float32([[0.3, -0.2, 0, 1], [-0.1, 0, 0.25, 0.4]])
    layer = layers.RandomTranslation(1.0, 1.0, **WHITE)
    pixels = np.stack([right * images.shape[2], down * images.shape[1]], axis=1)
    numbers = numbers_of(4, shift_height=down, shift_width=right)
    return RandomChanges(shift=1), numbers, by_keras(layer, images, translations=pixels)


def keras_rotation(images):
    degrees = np.float32([-170, -10, 0, 45])
    layer = layers.RandomRotation(0.5, **WHITE)
    zeros = ops.zeros(4)
    matrix = layer._compute_affine_matrix(
        *(0.5, 0.5, ops.convert_to_tensor(degrees), zeros, zeros),
        *(ops.ones(4), zeros, zeros, *images.shape[1:3]),
    )
    expected = by_keras(layer, images, rotation_matrix=matrix)
    return RandomChanges(rotation=180), numbers_of(4, rotation=degrees), expected


def keras_brightness(images):
    added = np.float32([-1, -0.2, 0, 0.3])
    layer = layers.RandomBrightness(1.0)
    levels = 255 * added.reshape(-1, 1, 1, 1)
    numbers = numbers_of(4, brightness=added)
    return (
        RandomChanges(brightness=1),
        numbers,
        by_keras(layer, images, rgb_delta=levels),
    )


def keras_contrast(images):
    factors = np.float32([0, 0.4, 1, 1.9])
    layer = layers.RandomContrast(0.9)
    four = factors.reshape(-1, 1, 1, 1)
    numbers = numbers_of(4, contrast=factors)
    expected = by_keras(layer, images, contrast_factor=four)
    return RandomChanges(contrast=0.9), numbers, expected


def keras_saturation(images):
    factors = np.float32([0, 0.3, 0.8, 1])
    layer = layers.RandomSaturation((0.0, 0.5))
    numbers = numbers_of(4, saturation=factors)
    return RandomChanges(saturation=1), numbers, by_keras(layer, images, factor=factors)


def keras_hue(images):
    turns = np.float32([-0.5, -0.07, 0.2, 0.5])
    layer = layers.RandomHue(1.0)
    return (
        RandomChanges(hue=1),
        numbers_of(4, hue=turns),
        by_keras(layer, images, factor=turns),
    )


def keras_grayscale(images):
    choices = np.arange(4) % 2 == 0
    layer = layers.RandomGrayscale(0.5)
    chosen = ops.convert_to_tensor(choices.reshape(-1, 1, 1, 1))
    floats = ops.convert_to_tensor(images.astype("float32"))
    expected = ops.convert_to_numpy(layer.transform_images(floats, chosen))
    return RandomChanges(grayscale=0.5), numbers_of(4, grayscale=choices), expected


ONE_BY_ONE = [
    keras_flip,
    keras_zoom,
    keras_shift,
    keras_rotation,
    keras_brightness,
    keras_contrast,
    keras_saturation,
    keras_hue,
    keras_grayscale,
]


@pytest.mark.parametrize("made", ONE_BY_ONE, ids=lambda f: f.__name__[6:])
def test_each_change_alone_is_that_of_keras(made):
    images = some_images()
    changes, numbers, expected = made(images)
    received = changed(changes, images, numbers)
    np.testing.assert_allclose(received, expected, rtol=0, atol=5e-3)
    assert np.abs(received - images).mean() > 1


def test_uint8_and_float_images_give_the_same():
    images, numbers = some_images(), ALL.numbers(1, 1, 4)
    floats = changed(ALL, images.astype("float32"), numbers)
    received = changed(ALL, images, numbers)
    np.testing.assert_allclose(received, floats, rtol=0, atol=2e-3)


@pytest.mark.parametrize("changes", [ALL, RandomChanges()], ids=["all", "none"])
def test_neutral_numbers_change_no_pixel(changes):
    images = some_images()
    images[0] = images[0, :1, :1]  # of one color
    images[1] = images[1, :, :, :1]  # gray
    received = changed(changes, images, numbers_of(4))
    assert received.dtype == "float32"
    np.testing.assert_allclose(received, images, rtol=0, atol=1e-3)


STRENGTHS = [field.name for field in dataclasses.fields(RandomChanges)]


def test_only_changes_with_a_strength_are_made():
    images, numbers = some_images(2), ALL.numbers(0, 0, 2)
    neutral = numbers_of(2)
    without = []
    for name in STRENGTHS:
        without.append(numbers.copy())
        columns = [c.startswith(name) for c in RandomChanges.COLUMNS]
        without[-1][:, columns] = neutral[:, columns]
    every = changed(ALL, np.tile(images, (9, 1, 1, 1)), np.concatenate(without))
    for place, name in enumerate(STRENGTHS):
        rest = dataclasses.replace(ALL, **{name: False if name == "flip" else 0})
        received = changed(rest, images, numbers)
        expected = every[2 * place : 2 * place + 2]
        np.testing.assert_allclose(received, expected, rtol=0, atol=3e-3, err_msg=name)


def test_uncovered_border_is_white():
    black = np.zeros((1, 10, 10, 3), "uint8")
    numbers = numbers_of(1, shift_height=0.4, shift_width=-0.2)
    moved = changed(RandomChanges(shift=0.4), black, numbers)[0, ..., 0]
    expected = np.full((10, 10), 255.0)
    expected[4:, :8] = 0
    np.testing.assert_allclose(moved, expected, atol=1e-3)


@compiled_or_not
def test_contrast_of_a_large_image_is_about_its_very_mean(compiled):
    images = some_images(1, 512, 512).astype("float32") / 7 + np.float32(150.1)
    numbers = numbers_of(1, contrast=1.9)
    mean = images.mean(axis=(1, 2), keepdims=True, dtype="float64")
    expected = np.clip(mean + np.float32(1.9) * (images - mean), 0, 255)
    received = changed(RandomChanges(contrast=0.9), images, numbers, compiled)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-3)


def test_what_zoom_moves_out_shift_brings_back():
    """One resampling: of three, the second would find the white of the first."""
    stripes = np.zeros((1, 8, 8, 3), "uint8")
    stripes[:, :, :2] = 100
    numbers = numbers_of(1, zoom_width=0.5, shift_width=0.5)
    changes = RandomChanges(zoom=0.5, shift=0.5)
    assert 100 in changed(changes, stripes, numbers)


@pytest.mark.parametrize("changes", [SHAPE, COLOR, ALL], ids=["shape", "color", "all"])
def test_an_image_does_not_depend_on_the_others_of_its_batch(changes):
    images, numbers = some_images(), changes.numbers(0, 0, 4)
    whole = changed(changes, images, numbers)
    turned = changed(changes, images[::-1].copy(), numbers[::-1].copy())
    np.testing.assert_allclose(turned[::-1], whole, rtol=0, atol=1e-4)
    alone = changed(changes, images[2:3], numbers[2:3])
    np.testing.assert_allclose(alone, whole[2:3], rtol=0, atol=1e-4)
    none = changed(changes, images[:0], numbers[:0])
    assert none.shape == (0, *images.shape[1:])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_layer_computes_in_float32_under_a_mixed_policy(policy):
    images, numbers = some_images().astype("float32"), ALL.numbers(0, 3, 4)
    keras.config.set_dtype_policy(policy)
    try:
        received = changed(ALL, images, numbers)
    finally:
        keras.config.set_dtype_policy("float32")
    assert received.dtype == "float32"
    np.testing.assert_array_equal(received, changed(ALL, images, numbers))


def model_with(changes, side=8):
    images = keras.Input((side, side, 3), dtype="uint8")
    numbers = keras.Input((len(RandomChanges.COLUMNS),))
    x = ImageChanges(changes)([images, numbers])
    assert tuple(x.shape) == (None, side, side, 3)
    assert x.dtype == "float32"
    outputs = layers.Dense(1)(layers.Flatten()(layers.Rescaling(1 / 255)(x)))
    return keras.Model([images, numbers], outputs)


@compiled_or_not
def test_layer_trains_in_a_compiled_step_with_batches_of_any_size(compiled):
    images, numbers = some_images(10, 8, 8), ALL.numbers(0, 0, 10)
    model = model_with(ALL)
    model.compile("sgd", "mse", jit_compile=compiled)
    history = model.fit(
        (images, numbers), np.zeros((10, 1)), batch_size=4, epochs=2, verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()


def test_layer_is_saved_with_a_model(tmp_path):
    model = model_with(SHAPE)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inputs = [some_images(3, 8, 8), SHAPE.numbers(0, 0, 3)]
    np.testing.assert_array_equal(
        loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0)
    )


def test_config_round_trip_keeps_every_strength():
    layer = ImageChanges(ALL, name="changes")
    config = json.loads(json.dumps(layer.get_config()))
    again = ImageChanges.from_config(config)
    assert again.changes == ALL
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("images", "numbers", "rule"),
    [
        ((4, 8, 8), (4, 11), "must be RGB"),
        ((4, 8, 8, 1), (4, 11), "must be RGB"),
        ((4, 8, 8, 3), (4, 10), "`RandomChanges.numbers`, 11 per image"),
        ((4, 8, 8, 3), (11,), "`RandomChanges.numbers`, 11 per image"),
        ((4, 8, 8, 3), (3, 11), "4 images and 3 rows"),
    ],
)
def test_inputs_of_other_shapes_are_refused(images, numbers, rule):
    with pytest.raises(ValueError, match=rule):
        ImageChanges(SHAPE)([np.zeros(images, "uint8"), np.zeros(numbers, "float32")])
    with pytest.raises(ValueError, match=rule):
        ImageChanges(SHAPE)([keras.Input(batch_shape=s) for s in (images, numbers)])


def test_images_without_numbers_are_refused():
    with pytest.raises(ValueError, match="images and their numbers"):
        ImageChanges(SHAPE)(some_images())
    with pytest.raises(ValueError, match="`changes` must be"):
        ImageChanges({"flip": True})


def test_images_too_many_to_count_their_pixels_are_refused():
    with pytest.raises(ValueError, match="at most 2147483647 pixels"):
        ImageChanges(SHAPE).compute_output_shape([(40, 8192, 8192, 3), (40, 11)])
