"""Recipes with a preset of KerasHub, from training to the exported model."""

import json
import shutil

import keras
import numpy as np
import pytest

from tests.support.hub_presets import write_preset
from tests.support.small_images import write_shapes
from tests.support.training_runs import JIT, fit
from tests.training.run.test_resume import assert_same_run, stop_fit
from tfdml.images import read_image, resize_image
from tfdml.index import LocalIndex
from tfdml.models import load_embedder
from training.__main__ import main

pytest.importorskip("keras_hub")

pytestmark = [pytest.mark.backend, pytest.mark.slow]

RECIPE = f"""
[data]
images = "{{images}}"
test_fraction = 0.3
validation_fraction = 0.2
[embedder]
image_size = 24
embedding_dimension = 8
backbone = "{{backbone}}"
pooling = "token"
tuning = "lora"
lora_rank = 2
[batches]
images_per_class = 3
classes_per_batch = 4
[augmentation]
flip = true
[fit]
steps = 12
steps_per_epoch = 6
learning_rate = 0.01
layer_decay = 0.5
head_only_steps = 2
jit_compile = {JIT}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("hub")
    write_shapes(root / "images", classes=10, images_per_class=4)
    preset = write_preset("dinov2", root / "preset")
    recipe = RECIPE.format(images=root / "images", backbone=preset)
    (root / "recipe.toml").write_text(recipe)
    assert fit(root / "recipe.toml", root / "run") == 0
    return root


def test_interrupted_run_ends_as_the_whole_one(root, tmp_path):
    run = tmp_path / "run"
    where = "training.run.progress:Progress", "on_train_batch_end", 9, "after"
    stop_fit(root / "recipe.toml", run, *where)
    assert fit(root / "recipe.toml", run) == 0
    assert_same_run(run, root / "run")


def test_run_holds_a_plain_embedder_that_measures_as_in_training(root, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(root / "run", run)
    embedder = load_embedder(run / "embedder.keras")
    assert not any("lora" in weight.path for weight in embedder.weights)
    before = json.loads((run / "metrics.json").read_text("utf-8"))
    assert main(["evaluate", str(run)]) == 0
    after = json.loads((run / "evaluation" / "metrics.json").read_text("utf-8"))
    expected = before["test_after_training"]["precision_at_1"]
    assert after["metrics"]["precision_at_1"] == pytest.approx(expected)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="exporting needs TensorFlow"
)
def test_run_is_exported_indexed_and_searched(root, tmp_path):
    from serving.__main__ import main as serve
    from tfdml.export import SavedEmbedder

    model = tmp_path / "models" / "1"
    assert serve(["export", str(root / "run"), str(model)]) == 0
    paths = (root / "run/test_images.txt").read_text("utf-8").splitlines()[:3]
    files = [root / "images" / path for path in paths]
    pixels = np.stack([resize_image(read_image(file), 24) for file in files])
    embedder = load_embedder(root / "run/embedder.keras")
    expected = embedder.predict(pixels.astype("float32"), verbose=0)
    received = SavedEmbedder(model).embed(pixels)
    np.testing.assert_allclose(received, expected, atol=1e-4)
    places = [str(root / "images"), str(tmp_path / "index")]
    assert serve(["index", "build", *places, "--model", str(model.parent)]) == 0
    with LocalIndex.load(tmp_path / "index") as index:
        found = index.search(received, 1)
    assert found.ids[:, 0].tolist() == paths
