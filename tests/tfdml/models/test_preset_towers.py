"""Both towers of presets of KerasHub: as KerasHub computes them, and exported."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.support.hub_presets import (
    OFFSET,
    SCALE,
    TEXTS,
    write_preset,
    write_towers_preset,
)
from tests.support.refuses import refusals, refuses
from tfdml.export import SavedEmbedder, export_embedder
from tfdml.models import load_towers

keras_hub = pytest.importorskip("keras_hub")
pytest.importorskip("tensorflow_text")

ROOT = Path(__file__).parents[3]


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


IN_A_SERVER = """
import sys
import numpy as np
from serving.endpoint.models.servable import Servable

model = Servable("towers", 1, sys.argv[1])
texts = np.array([text.encode() for text in sys.argv[2:]], object)
rows = model.predict({"texts": texts}, "text")["embedding"]
assert "keras_hub" not in sys.modules
print(rows.tolist())
"""


# KerasHub 0.32 leaves the file of a SentencePiece vocabulary open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["siglip", pytest.param("clip", marks=pytest.mark.full)]
)
def test_towers_are_those_of_keras_hub_also_when_exported(kind, tmp_path):
    folder = write_towers_preset(kind, tmp_path / "preset")
    towers = load_towers(str(folder), 16)
    backbone = keras_hub.models.Backbone.from_preset(str(folder))
    makers = {"clip": "CLIPPreprocessor", "siglip": "SigLIPPreprocessor"}
    preprocessor = getattr(keras_hub.models, makers[kind]).from_preset(str(folder))
    preprocessor.image_converter = None
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    given = preprocessor({"prompts": TEXTS, "images": pixels})
    texts = unit(backbone.get_text_embeddings(given["token_ids"]))
    images = unit(backbone.get_vision_embeddings(pixels * np.float32(SCALE) + OFFSET))
    words = keras.ops.convert_to_tensor(np.array(TEXTS, object), "string")
    np.testing.assert_allclose(towers.texts(words), texts, atol=1e-5)
    np.testing.assert_allclose(towers.images(pixels), images, atol=1e-5)
    export_embedder(towers.images, tmp_path / "m" / "1", towers.view, text=towers.texts)
    saved = SavedEmbedder(tmp_path / "m" / "1")
    assert saved.view == towers.view
    np.testing.assert_allclose(saved.embed_texts(TEXTS), texts, atol=1e-5)
    np.testing.assert_allclose(saved.embed(pixels), images, atol=1e-5)
    command = [sys.executable, "-c", IN_A_SERVER, str(tmp_path / "m" / "1"), *TEXTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), texts, atol=1e-5)


@refusals(
    ("preset", 7, "must be the name of a preset"),
    ("image_size", 4, "must be a whole number of at least 8"),
)
def test_bad_arguments_are_refused(argument, value, rule):
    valid = {"preset": "presets/x", "image_size": 16}
    refuses(load_towers, argument=argument, value=value, rule=rule, valid=valid)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("vit", "an image and a text tower"), ("clip", "must have a tokenizer")],
)
def test_preset_without_texts_is_refused(kind, rule, tmp_path):
    folder = write_preset(kind, tmp_path / kind)
    with pytest.raises(ValueError, match=rule):
        load_towers(str(folder), 16)
