"""Training batches and their augmentation."""

import keras
import numpy as np
import pytest

from tfdml.batch_designs import GroupBatches
from tfdml.images import View
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.recipe.recipe import Augmentation
from training.run.batches import ImageBatches, build_augmentation

pytestmark = pytest.mark.backend

LABELS = np.repeat(np.arange(6), 3)
IMAGES = np.arange(20, dtype="uint8").reshape(20, 1, 1, 1) * np.ones(
    (1, 8, 8, 3), "uint8"
)


def split():
    """All images but the first two, which are in another split."""
    splits = np.where(np.arange(20) < 2, "test", "train")
    labels = np.append([6, 6], LABELS)
    data = DataSet(IMAGES, labels, splits, tuple("abcdefg"))
    positions = np.arange(2, 20)
    return Split(data.select(positions), Images(data, View(8)), positions)


def batches(steps_per_epoch, kind=ImageBatches):
    design = GroupBatches(LABELS, 2, 2, seed=1)
    return kind(split(), design, steps_per_epoch, lambda x, step: x)


def read_epochs(dataset, count, first=0):
    read = []
    for epoch in range(first, first + count):
        dataset.begin_at(epoch)
        read += [dataset[i] for i in range(len(dataset))]
    return read


def test_images_and_labels_belong_together():
    for images, labels in read_epochs(batches(4), 2):
        assert images.dtype == "float32"
        assert labels.dtype == LABELS.dtype
        np.testing.assert_array_equal(
            LABELS[images[:, 0, 0, 0].astype(int) - 2], labels
        )


def test_run_does_not_depend_on_where_epochs_are_cut():
    short, long = read_epochs(batches(2), 6), read_epochs(batches(4), 3)
    for (_, a), (_, b) in zip(short, long, strict=True):
        np.testing.assert_array_equal(a, b)


def test_run_can_begin_at_any_epoch():
    late, whole = read_epochs(batches(4), 2, first=2), read_epochs(batches(4), 4)
    for (_, a), (_, b) in zip(late, whole[8:], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_fit_takes_each_batch_of_the_run_once_and_in_order(steps):
    read = []

    class Recorded(ImageBatches):
        def __getitem__(self, index):
            batch = super().__getitem__(index)
            read.append(batch[1])
            return batch

    dataset = batches(steps, Recorded)
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", loss="mse")
    begin = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: dataset.begin_at(epoch)
    )
    model.fit(
        dataset,
        initial_epoch=2,
        epochs=5,
        shuffle=False,
        verbose=0,
        callbacks=[begin],
    )
    expected = [labels for _, labels in read_epochs(batches(steps), 3, first=2)]
    # Before it starts, Keras looks at batches to learn their type.
    np.testing.assert_array_equal(read[-len(expected) :], expected)


STRONG = Augmentation(zoom=0.3, shift=0.2, rotation=20, flip=True, brightness=0.2)
COLORS = Augmentation(contrast=0.4, saturation=0.8, hue=0.1, grayscale=0.5)


@pytest.mark.parametrize("settings", [STRONG, COLORS], ids=["shape", "color"])
def test_augmentation_changes_each_image_and_keeps_its_range(settings):
    image = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3)).astype("float32")
    images = np.repeat(image, 4, axis=0)
    augment = build_augmentation(settings, seed=1)
    first, second = augment(images, 0), augment(images, 1)
    assert first.shape == images.shape
    assert first.min() >= -1e-3
    assert first.max() <= 255 + 1e-3
    assert np.abs(first - second).mean() > 1
    assert np.abs(first[0] - first[1]).mean() > 1
    # Whatever came before, a step has its own random numbers.
    np.testing.assert_array_equal(augment(images, 0), first)
    again = build_augmentation(settings, seed=1)
    np.testing.assert_array_equal(again(images, 1), second)


def test_uncovered_border_is_white():
    augment = build_augmentation(Augmentation(shift=0.4), seed=0)
    moved = augment(np.zeros((16, 10, 10, 3), "float32"), 0)
    assert set(np.unique(np.round(moved)).tolist()) >= {0.0, 255.0}


def test_without_settings_images_pass_untouched():
    images = IMAGES.astype("float32")
    assert build_augmentation(Augmentation(), seed=0)(images, 3) is images
