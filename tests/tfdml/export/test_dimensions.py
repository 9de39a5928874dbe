"""Exports that return the first dimensions of an embedding."""

import importlib.util
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.encoded_images import IMAGES, SIZE
from tests.support.refuses import refusals, refuses
from tfdml.export import (
    SavedEmbedder,
    export_embedder,
    export_file,
    read_description,
    restore_embeddings,
)
from tfdml.images import View, read_image
from tfdml.models import build_embedder
from tfdml.neighbors import first_dimensions

DIMENSION, KEPT = 8, 3


@pytest.fixture(scope="module")
def embedder():
    keras.utils.set_random_seed(4)
    inputs = keras.Input((SIZE, SIZE, 3))
    rows = keras.layers.Dense(DIMENSION)(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.UnitNormalization()(rows))


@pytest.fixture(scope="module")
def images():
    view = View(SIZE)
    shown = [view.central(read_image(data)) for data in list(IMAGES.values())[:4]]
    return np.stack(shown)


def test_every_signature_returns_the_first_numbers(embedder, images, tmp_path):
    folder = tmp_path / "1"
    export_embedder(embedder, folder, output_dtype="int8", dimensions=KEPT)
    saved = SavedEmbedder(folder)
    assert saved.dimension == KEPT
    rows = first_dimensions(embedder.predict(images, verbose=0), KEPT)
    np.testing.assert_allclose(saved.embed(images), rows, atol=1e-5)
    model = tf.saved_model.load(str(folder))
    encoded = tf.constant([IMAGES["PNG"]])
    whole = model.signatures["serving_default"](image_bytes=encoded)["embedding"]
    assert whole.shape == (1, KEPT)
    int8 = model.signatures["embed_int8"](image_bytes=encoded)
    restored = restore_embeddings(int8["embedding"].numpy(), int8["scale"].numpy())
    np.testing.assert_allclose(restored, whole, atol=0.01)
    none = model.signatures["tensors"](images=images[:0])["embedding"]
    assert none.shape == (0, KEPT)
    about = read_description(folder)["embedding"]
    assert (about["dimension"], about["cut_from"]) == (KEPT, DIMENSION)


def test_all_dimensions_are_no_cut(embedder, tmp_path):
    export_embedder(embedder, tmp_path / "1", dimensions=DIMENSION)
    about = read_description(tmp_path / "1")["embedding"]
    assert about["dimension"] == DIMENSION
    assert "cut_from" not in about


def test_embeddings_of_any_length_keep_theirs(images, tmp_path):
    embedder = build_embedder(SIZE, DIMENSION, widths=(8,), unit_length=False)
    export_embedder(embedder, tmp_path / "1", dimensions=KEPT)
    rows = embedder.predict(images, verbose=0)[:, :KEPT]
    np.testing.assert_allclose(
        SavedEmbedder(tmp_path / "1").embed(images), rows, rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_file_returns_the_first_numbers(embedder, images, tmp_path):
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("the extra `onnx`")
    import onnxruntime

    file = tmp_path / "model.onnx"
    export_file(embedder, file, format="onnx", dimensions=KEPT)
    session = onnxruntime.InferenceSession(
        str(file), providers=["CPUExecutionProvider"]
    )
    (rows,) = session.run(None, {"images": images})
    expected = first_dimensions(embedder.predict(images, verbose=0), KEPT)
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    about = json.loads((tmp_path / "model.onnx.json").read_text())
    assert about["output"]["shape"] == [None, KEPT]
    assert about["embedding"]["cut_from"] == DIMENSION


@refusals(
    ("dimensions", 0, "must be a whole number of at least 1"),
    ("dimensions", 9, "must be from 1 to 8"),
)
def test_bad_dimensions_are_refused(argument, value, rule, embedder, tmp_path):
    valid = {"embedder": embedder, "folder": tmp_path / "1"}
    refuses(export_embedder, argument=argument, value=value, rule=rule, valid=valid)
    assert not (tmp_path / "1").exists()
