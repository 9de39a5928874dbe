"""Training batches, with the numbers of their random changes."""

from typing import ClassVar

import keras
import numpy as np
import pytest

from tfdml.batch_designs import GroupBatches
from tfdml.images import RandomChanges, View
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.split import Split
from training.run.batches import ImageBatches

pytestmark = pytest.mark.backend

NONE = RandomChanges()
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


def batches(steps_per_epoch, kind=ImageBatches, changes=NONE):
    design = GroupBatches(LABELS, 2, 2, seed=1)
    return kind(split(), design, steps_per_epoch, changes, 3)


def read_epochs(dataset, count, first=0):
    read = []
    for epoch in range(first, first + count):
        dataset.begin_at(epoch)
        read += [dataset[i] for i in range(len(dataset))]
    return read


def test_images_and_labels_belong_together():
    for images, labels in read_epochs(batches(4), 2):
        assert images.dtype == "uint8"
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


def test_random_changes_come_as_numbers_beside_the_images():
    changes = RandomChanges(zoom=0.2, flip=True)
    plain = read_epochs(batches(4), 2)
    changed = read_epochs(batches(4, changes=changes), 2)
    for step, (before, after) in enumerate(zip(plain, changed, strict=True)):
        (images, numbers), labels = after
        np.testing.assert_array_equal(images, before[0])
        np.testing.assert_array_equal(labels, before[1])
        expected = changes.numbers(seed=3, step=step, count=len(images))
        np.testing.assert_array_equal(numbers, expected)
    late = batches(4, changes=changes)
    late.begin_at(1)
    np.testing.assert_array_equal(late[2][0][1], changed[6][0][1])


class Seen(keras.layers.Layer):
    """Notes in which type the compiled step gets its images."""

    types: ClassVar[list] = []

    def call(self, images):
        if not keras.backend.is_keras_tensor(images):
            self.types.append(keras.backend.standardize_dtype(images.dtype))
        return keras.ops.mean(keras.ops.cast(images, "float32"), axis=(1, 2))


@pytest.mark.parametrize("changes", [NONE, RandomChanges(flip=True)])
def test_images_go_into_the_step_as_bytes(changes, monkeypatch):
    """A quarter of what float32 takes on the way to the device."""
    dataset = batches(3, changes=changes)
    images = keras.Input((8, 8, 3), dtype="uint8")
    numbers = keras.Input((len(changes.COLUMNS),))
    outputs = keras.layers.Dense(1)(Seen()(images))
    model = keras.Model([images, numbers] if changes else images, outputs)
    model.compile("sgd", loss="mse")
    taken = []
    step = model.train_step

    def train_step(*arguments):
        taken.extend(a for a in arguments)
        return step(*arguments)

    monkeypatch.setattr(model, "train_step", train_step)
    monkeypatch.setattr(Seen, "types", [])
    model.fit(dataset, epochs=1, verbose=0)
    assert set(Seen.types) == {"uint8"}
    data = taken[-1]
    first = data[0][0] if changes else data[0]
    assert keras.backend.standardize_dtype(first.dtype) == "uint8"
