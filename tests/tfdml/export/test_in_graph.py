"""The exported graph reads images as the training reader does."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.encoded_images import (
    IMAGES,
    ODD_SHAPES,
    SIZE,
    VIEWS,
    encoded,
    photograph,
)
from tfdml.export._in_graph import training_form
from tfdml.images import View, encode_png, read_image

ANIMATED = encoded(
    photograph(), "WEBP", save_all=True, append_images=[photograph().rotate(180)]
)
BIT_FIELDS = bytearray(IMAGES["BMP of 32 bits"])
BIT_FIELDS[30] = 3  # compression: the order of the channels is that of masks


def assert_graph_reads_as_training_does(data, view):
    """docs/images.md states these bounds."""
    in_graph = training_form(tf.constant(data), view).numpy()
    levels = np.abs(in_graph - view.central(read_image(data)))
    assert levels.max() <= 1
    assert levels.mean() <= 0.25


@pytest.mark.parametrize("name", IMAGES)
def test_graph_reads_an_image_as_the_training_reader_does(exported, name):
    _, embedder, model = exported
    data = IMAGES[name]
    assert_graph_reads_as_training_does(data, View(SIZE))
    image = View(SIZE).central(read_image(data))
    expected = embedder.predict(image[np.newaxis], verbose=0)
    served = model.signatures["serving_default"](image_bytes=tf.constant([data]))
    received = served["embedding"].numpy()
    assert received.shape == (1, 8)
    np.testing.assert_allclose(np.linalg.norm(received), 1, atol=1e-6)
    assert float(np.sum(received * expected)) >= 0.9999  # cosine similarity


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [*IMAGES, *ODD_SHAPES])
def test_graph_shows_the_view_of_the_training_reader(name, view):
    assert_graph_reads_as_training_does({**IMAGES, **ODD_SHAPES}[name], VIEWS[view])


def test_what_is_reduced_to_the_view_stays_as_it_is_in_the_graph():
    """So the client's images get exactly the training embedding."""
    for view in VIEWS.values():
        image = read_image(IMAGES["JPEG"])
        data = encode_png(view.reduced(image))
        in_graph = training_form(tf.constant(data), view).numpy()
        np.testing.assert_array_equal(in_graph, view.central(image))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello", "Unknown image file format"),
        (b"", "Unknown image file format|empty"),
        (IMAGES["JPEG"][:200], "jpeg|JPEG"),
        (encoded(photograph().quantize(64), "BMP"), "24 or 32 bits a pixel"),
        (bytes(BIT_FIELDS), "24 or 32 bits a pixel"),
    ],
    ids=["text", "empty", "half a JPEG", "palette BMP", "BMP with masks"],
)
def test_bytes_that_are_no_image_are_refused(exported, data, reason):
    signature = exported[2].signatures["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        signature(image_bytes=tf.constant([data]))


@pytest.mark.slow
def test_animated_webp_is_refused_and_does_not_end_the_process(exported):
    """TensorFlow 2.20 writes its RGBA frames over the end of an RGB buffer."""
    code = (
        "import sys, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "data = tf.constant([sys.stdin.buffer.read()])\n"
        "try:\n"
        "    model.signatures['serving_default'](image_bytes=data)\n"
        "except tf.errors.InvalidArgumentError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, exported[0] / "model" / "1"],
        input=ANIMATED,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"animated WebP" in done.stdout
