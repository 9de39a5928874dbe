"""Text towers that do not fit an embedder are refused before anything is written."""

import keras
import pytest

from tests.support.refuses import refusals, refuses
from tfdml.export import SavedEmbedder, export_embedder
from tfdml.models import load_text_tower


def embedder():
    pixels = keras.Input((8, 8, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(pixels)
    return keras.Model(pixels, keras.layers.UnitNormalization()(pooled))


def tower(dimension, shape=()):
    texts = keras.Input(shape, dtype="string")
    words = keras.layers.TextVectorization(
        vocabulary=["red", "blue"], output_sequence_length=4
    )
    x = keras.layers.Embedding(4, dimension)(words(texts))
    return keras.Model(texts, keras.layers.GlobalAveragePooling1D()(x))


@pytest.mark.parametrize("shape", [(), (1,)])
def test_rows_of_texts_have_length_1_and_the_dimensions_kept(tmp_path, shape):
    export_embedder(embedder(), tmp_path / "1", text=tower(3, shape), dimensions=2)
    rows = SavedEmbedder(tmp_path / "1").embed_texts(["red", "", "blue blue"])
    assert rows.shape == (3, 2)
    assert (rows**2).sum(axis=1) == pytest.approx([1, 1, 1], abs=1e-5)


@refusals(
    ("text", "red", "must be a Keras model from strings"),
    ("text", tower(4), "to embeddings [batch, 3], as long as those of images"),
    ("text", embedder(), "must be a Keras model from strings"),
)
def test_towers_that_do_not_fit_are_refused(tmp_path, argument, value, rule):
    valid = {"embedder": embedder(), "folder": tmp_path / "1"}
    refuses(export_embedder, argument=argument, value=value, rule=rule, valid=valid)
    assert not (tmp_path / "1").exists()


def test_model_without_a_tower_embeds_no_texts(tmp_path):
    export_embedder(embedder(), tmp_path / "1")
    saved = SavedEmbedder(tmp_path / "1")
    assert not saved.has_text
    with pytest.raises(ValueError, match="`texts` must be embedded by a model with a"):
        saved.embed_texts(["red"])


def test_only_files_of_text_towers_are_loaded(tmp_path):
    tower(3).save(tmp_path / "text.keras")
    assert load_text_tower(tmp_path / "text.keras").output_shape == (None, 3)
    embedder().save(tmp_path / "images.keras")
    for name, reason in (("images.keras", "a text tower"), ("no.keras", "not exist")):
        with pytest.raises(ValueError, match=reason):
            load_text_tower(tmp_path / name)
