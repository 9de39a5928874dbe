"""Embeddings of float16 and int8: what they lose, and how they are turned back."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont

from tests.support.encoded_images import IMAGES
from tfdml.export import export_embedder, restore_embeddings
from tfdml.export._compact import compact_outputs
from tfdml.models import build_embedder
from tfdml.neighbors import nearest_neighbors

SIZE = 16


@pytest.fixture(scope="module")
def embedder():
    keras.utils.set_random_seed(5)
    inputs = keras.Input((SIZE, SIZE, 3))
    rows = keras.layers.Dense(64)(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, keras.layers.UnitNormalization()(rows))


def unit_rows(count, dimension, seed=0):
    rows = np.random.default_rng(seed).normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("float32")


@pytest.mark.parametrize("dimension", [2, 64, 512])
def test_int8_is_within_half_a_step_of_each_number(dimension):
    rows = unit_rows(50, dimension)
    outputs = compact_outputs(tf.constant(rows), "int8")
    steps, scale = outputs["embedding"].numpy(), outputs["scale"].numpy()
    assert steps.dtype == np.int8
    np.testing.assert_allclose(scale, np.abs(rows).max(axis=1) / 127, rtol=1e-6)
    error = np.abs(steps * scale[:, None] - rows)
    assert (error <= scale[:, None] * (0.5 + 1e-5)).all()
    assert (np.abs(steps).max(axis=1) == 127).all()


def test_float16_is_the_nearest_of_each_number():
    rows = unit_rows(50, 64)
    outputs = compact_outputs(tf.constant(rows), "float16")
    np.testing.assert_array_equal(outputs["embedding"], rows.astype("float16"))
    assert set(outputs) == {"embedding"}


@pytest.mark.parametrize("output_dtype", ["float32", "float16", "int8"])
def test_restored_rows_have_length_1_and_their_direction(output_dtype):
    rows = unit_rows(50, 512)
    outputs = compact_outputs(tf.constant(rows), output_dtype)
    restored = restore_embeddings(**{key: v.numpy() for key, v in outputs.items()})
    assert restored.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(restored, axis=1), 1, atol=1e-6)
    assert np.sum(restored * rows, axis=1).min() > 0.999


def test_row_of_zeros_stays_one():
    outputs = compact_outputs(tf.zeros([1, 4]), "int8")
    assert outputs["embedding"].numpy().tolist() == [[0, 0, 0, 0]]
    assert restore_embeddings(**outputs).tolist() == [[0, 0, 0, 0]]


def test_row_of_nan_is_not_hidden_by_int8():
    outputs = compact_outputs(tf.constant([[np.nan, 1.0], [0.6, 0.8]]), "int8")
    restored = restore_embeddings(**outputs)
    assert np.isnan(restored[0]).all()
    np.testing.assert_allclose(restored[1], [0.6, 0.8], atol=0.01)


def test_int8_without_scale_is_refused():
    with pytest.raises(ValueError, match="`scale` must be given"):
        restore_embeddings(np.ones((2, 3), "int8"))


@pytest.mark.parametrize(
    ("embedding", "scale", "reason"),
    [
        (np.ones(3, "int8"), [1.0], r"\[batch, dimension\].*\(3,\)"),
        (np.ones((2, 3), "int8"), [1.0], r"\[2\], one for each row.*\(1,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(embedding, scale, reason):
    with pytest.raises(ValueError, match=reason):
        restore_embeddings(embedding, scale)


@pytest.mark.parametrize("output_dtype", ["float16", "int8"])
def test_signature_answers_beside_the_float32_one(embedder, tmp_path, output_dtype):
    export_embedder(embedder, tmp_path / "1", output_dtype=output_dtype)
    signatures = tf.saved_model.load(tmp_path / "1").signatures
    assert set(signatures) == {
        *("serving_default", "tensors", "describe", f"embed_{output_dtype}")
    }
    compact = signatures[f"embed_{output_dtype}"]
    for rows in (0, 1, 3, 33):
        data = tf.constant(list(IMAGES.values())[:3] * 11, tf.string)[:rows]
        full = signatures["serving_default"](image_bytes=data)["embedding"].numpy()
        assert full.dtype == np.float32
        outputs = compact(image_bytes=data)
        assert outputs["embedding"].dtype == output_dtype
        assert outputs["embedding"].shape == (rows, 64)
        assert outputs.get("scale", np.zeros(rows)).shape == (rows,)
        restored = restore_embeddings(**{k: v.numpy() for k, v in outputs.items()})
        assert (np.sum(restored * full, axis=1) > 0.999).all()


def test_other_types_are_refused(embedder, tmp_path):
    with pytest.raises(ValueError, match=r"`output_dtype` must be one of.*uint8"):
        export_embedder(embedder, tmp_path / "1", output_dtype="uint8")
    assert not list(tmp_path.iterdir())


def draw_glyphs(code_points, size=32):
    """Draw characters in six fonts; returns images and their code points."""
    matplotlib = pytest.importorskip("matplotlib")
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    names = "Sans", "Sans-Bold", "Serif", "Serif-Bold", "SansMono", "SansMono-Oblique"
    images = []
    for name in names:
        font = ImageFont.truetype(str(fonts / f"DejaVu{name}.ttf"), size * 2 // 3)
        for code_point in code_points:
            image = Image.new("RGB", (size, size), "white")
            middle, letter = (size // 2, size // 2), chr(code_point)
            draw = ImageDraw.Draw(image)
            draw.text(middle, letter, fill="black", font=font, anchor="mm")
            images.append(np.asarray(image))
    return np.stack(images), np.tile(code_points, len(names))


@pytest.mark.full
@pytest.mark.parametrize("dimension", [64, 512])
def test_search_among_unseen_glyphs_hardly_changes(dimension):
    """docs/export.md states the numbers that this prints."""
    keras.utils.set_random_seed(0)
    ranges = (0x21, 0x7F), (0xC0, 0x17F), (0x391, 0x3A2), (0x3B1, 0x3CA), (0x400, 0x460)
    code_points = np.concatenate([np.arange(*ends) for ends in ranges])
    images, labels = draw_glyphs(code_points[::2])
    embedder = build_embedder(32, dimension, widths=(16, 32), pooling="flatten")
    scaled = keras.layers.Rescaling(16.0)(embedder.output)
    classes = keras.layers.Dense(len(code_points[::2]), use_bias=False, name="classes")
    training = keras.Model(embedder.input, classes(scaled))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    training.compile("adam", loss)
    targets = np.searchsorted(code_points[::2], labels)
    training.fit(images, targets, batch_size=64, epochs=10, verbose=0)

    images, labels = draw_glyphs(code_points[1::2])
    rows = embedder.predict(images, verbose=0)
    own = np.arange(len(rows))
    before, _ = nearest_neighbors(rows, rows, 10, exclude=own)
    precision = np.mean(labels[before[:, 0]] == labels)
    print(f"\n{len(rows)} images, {dimension} dimensions: P@1 {precision:.4f}")
    for output_dtype, least in (("float16", 0.99), ("int8", 0.97)):
        outputs = compact_outputs(tf.constant(rows), output_dtype)
        restored = restore_embeddings(**{k: v.numpy() for k, v in outputs.items()})
        after, _ = nearest_neighbors(restored, restored, 10, exclude=own)
        same = [len(set(a) & set(b)) for a, b in zip(after, before, strict=True)]
        recall, now = np.mean(same) / 10, np.mean(labels[after[:, 0]] == labels)
        print(f"  {output_dtype}: recall@10 {recall:.4f}, P@1 {now:.4f}")
        assert recall >= least
        assert abs(now - precision) <= 0.01
