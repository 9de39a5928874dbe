"""N-pair batches of classes that the network of each epoch finds hard to tell apart."""

import threading

import keras
import numpy as np
import pytest

from tests.support.small_images import write_shapes
from tests.support.training_runs import RECIPE, fit
from tests.training.run.test_resume import assert_same_run, stop_fit
from tfdml.batch_designs import NPairBatches, class_means
from tfdml.images import View
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.recipe.recipe import RecipeError, recipe_of
from training.run.hard_classes import HardClassEpochs, HardClassMining

pytestmark = pytest.mark.backend

LABELS = np.repeat(np.arange(7), [2, 3, 4, 1, 5, 2, 3])
EMBEDDINGS = np.random.default_rng(0).normal(size=(3, 7, 4))


def design(embeddings=None):
    return NPairBatches(LABELS, 2, class_embeddings=embeddings, seed=5)


def naive(epoch, steps):
    """The batches of an epoch, from whole passes with its class embeddings."""
    own = design(EMBEDDINGS[epoch])
    return [
        own.batches(step // len(own))[step % len(own)]
        for step in range(epoch * steps, (epoch + 1) * steps)
    ]


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_epoch_has_the_batches_of_its_class_embeddings(steps):
    epochs = HardClassEpochs(design(), steps)
    assert (len(epochs), epochs.batch_size, epochs.images) == (steps, 4, len(LABELS))
    for epoch in range(3):
        epochs.begin(epoch, EMBEDDINGS[epoch])
        np.testing.assert_array_equal(epochs.batches(epoch), naive(epoch, steps))
    # The one before is remembered, although the embeddings have changed.
    np.testing.assert_array_equal(epochs.batches(1), naive(1, steps))


def test_batches_wait_for_the_class_embeddings_of_their_epoch():
    epochs, read = HardClassEpochs(design(), 4), []
    epochs.begin(0, EMBEDDINGS[0])
    thread = threading.Thread(target=lambda: read.append(epochs.batches(1)))
    thread.start()
    np.testing.assert_array_equal(epochs.batches(0), naive(0, 4))
    epochs.begin(1, EMBEDDINGS[1])
    thread.join()
    np.testing.assert_array_equal(read[0], naive(1, 4))


def test_nobody_waits_when_the_run_is_over():
    epochs = HardClassEpochs(design(), 4)
    epochs.close()
    assert epochs.batches(3).shape == (4, 4)


class Mean(keras.layers.Layer):
    """The mean of each color of an image."""

    def call(self, images):
        return keras.ops.mean(keras.ops.cast(images, "float32"), (1, 2))


def test_two_images_of_each_class_are_embedded():
    images = np.random.default_rng(1).integers(0, 256, (22, 8, 8, 3)).astype("uint8")
    labels = np.append([9, 9], LABELS)  # two of another split
    splits = np.where(np.arange(22) < 2, "test", "train")
    data = DataSet(images, labels, splits, tuple("abcdefghij"))
    positions = np.arange(2, 22)
    split = Split(data.select(positions), Images(data, View(8)), positions)
    inputs = keras.Input((8, 8, 3), dtype="uint8")
    embedder = keras.Model(inputs, Mean()(inputs))
    given = {}

    class Noted(HardClassEpochs):
        def begin(self, epoch, class_embeddings):
            given[epoch] = class_embeddings
            super().begin(epoch, class_embeddings)

    mining = HardClassMining(Noted(design(), 3), split, embedder)
    for epoch in (0, 1, 0):
        mining.begin(epoch)
        assert given[epoch].shape == (7, 3)
    colors = images[2:].mean((1, 2))
    pairs = class_means(colors, LABELS)
    small = [0, 3, 5]  # classes of at most two images
    np.testing.assert_allclose(given[0][small], pairs[small], rtol=1e-5)
    assert np.abs(given[0] - given[1]).max() > 0.1  # other images of the larger ones
    for label in range(7):
        own = colors[label == LABELS]
        means = [(a + b) / 2 for a in own for b in own]
        assert np.isclose(means, given[1][label], rtol=1e-5).all(1).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"hard_classes": True}, "`hard_classes` does not go with the design 'groups'"),
        (
            {"design": "n_pairs", "candidate_classes": 9},
            "`candidate_classes` goes with `hard_classes` = true. Received: 9",
        ),
        (
            {"design": "n_pairs", "hard_classes": True, "candidate_classes": -1},
            "`candidate_classes` must be at least 0",
        ),
    ],
)
def test_what_cannot_be_mined_is_refused(text, message):
    with pytest.raises(RecipeError, match=message):
        recipe_of({"data": {"images": "x"}, "batches": text})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("hard_classes")
    write_shapes(root / "images", classes=10, images_per_class=4)
    recipe = RECIPE.format(images=root / "images").replace("steps = 12", "steps = 18")
    recipe = recipe.replace(
        "images_per_class = 3\nclasses_per_batch = 4",
        "design = 'n_pairs'\nclasses_per_batch = 3\nhard_classes = true\n"
        "candidate_classes = 4",
    )
    loss = "[loss]\nname = 'MultiClassNPairLoss'\nnormalize = true\n"
    (root / "recipe.toml").write_text(recipe + loss)
    assert fit(root / "recipe.toml", root / "whole") == 0
    return root


@pytest.mark.slow
def test_interrupted_run_mines_the_same_classes(folder, tmp_path):
    run = tmp_path / "run"
    where = "training.run.progress:Progress"
    stop_fit(folder / "recipe.toml", run, where, "on_train_batch_end", 9, "after")
    assert fit(folder / "recipe.toml", run) == 0
    assert_same_run(run, folder / "whole")
