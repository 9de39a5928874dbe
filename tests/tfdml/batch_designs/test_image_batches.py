"""Batches of images: the right ones, read ahead, in every order."""

import threading

import keras
import numpy as np
import pytest
from PIL import Image

from tests.support.small_images import write_shapes
from tfdml.batch_designs import (
    BatchSequence,
    GroupBatches,
    gathered_dataset,
    image_batches,
)
from tfdml.images import (
    ImageReader,
    RandomChanges,
    UnreadableImageError,
    View,
    labeled_images,
)
from tfdml.losses import MultiSimilarityLoss

VIEW = View(12, resize=14)


@pytest.fixture
def found(tmp_path):
    write_shapes(tmp_path / "shapes", classes=4, images_per_class=5)
    return labeled_images(tmp_path / "shapes")


@pytest.mark.backend
def test_folder_and_design_are_all_that_fit_needs(found):
    files, labels, _ = found
    losses = []
    for workers in (0, 2):
        design = GroupBatches(labels, 2, 4)
        batches = image_batches(files, labels, design, VIEW, workers=workers)
        keras.utils.set_random_seed(0)
        layers = [
            keras.Input((12, 12, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(8),
        ]
        model = keras.Sequential(layers)
        model.compile("sgd", loss=MultiSimilarityLoss())
        history = model.fit(batches, epochs=3, shuffle=False, verbose=0).history
        losses.append(history["loss"])
    assert len(set(losses[0])) == 3
    assert losses[0] == losses[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_reader_whoever_reads(found, workers):
    files, labels, _ = found
    design = GroupBatches(labels, 2, 2, seed=1)
    batches = image_batches(
        files, labels, design, VIEW, seed=4, workers=workers, start_step=3
    )
    reader = ImageReader(files, VIEW, crop="resized", seed=4)
    for index in range(len(batches)):
        images, own = batches[index]
        chosen = batches.positions(3 + index)
        np.testing.assert_array_equal(images, reader.random(chosen, 3 + index))
        np.testing.assert_array_equal(own, labels[chosen])


def test_changes_come_with_their_numbers(found):
    files, labels, _ = found
    design, changes = GroupBatches(labels, 2, 2), RandomChanges(flip=True, hue=0.2)
    batches = image_batches(files, labels, design, VIEW, changes=changes, seed=5)
    plain = image_batches(files, labels, design, VIEW, seed=5)
    (images, numbers), own = batches[1]
    np.testing.assert_array_equal(images, plain[1][0])
    np.testing.assert_array_equal(own, plain[1][1])
    np.testing.assert_array_equal(numbers, changes.numbers(5, 1, len(own)))


def test_broken_image_is_named_when_its_batch_is_taken(found):
    files, labels, _ = found
    files[7].write_bytes(b"no image")
    batches = image_batches(files, labels, GroupBatches(labels, 5, 4), VIEW)
    with pytest.raises(UnreadableImageError, match=files[7].name):
        batches[0]


def test_labels_of_another_length_are_refused(found):
    files, labels, _ = found
    design = GroupBatches(labels, 2, 2)
    with pytest.raises(ValueError, match="`images` must be the 20 images of the"):
        image_batches(files[1:], labels, design, VIEW)
    with pytest.raises(ValueError, match="`y` must hold arrays of 20 rows"):
        image_batches(files, labels[1:], design, VIEW)


def recorded(ahead):
    """Return a sequence of step numbers, and those that were read."""
    read, lock = [], threading.Lock()

    def step_of(positions, step):
        with lock:
            read.append(step)
        return np.full(len(positions), step)

    design = GroupBatches(np.repeat(np.arange(6), 2), 2, 2)
    return BatchSequence(design, step_of, steps_per_epoch=4, ahead=ahead), read


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_batches_read_ahead_come_in_order_and_once(ahead):
    sequence, read = recorded(ahead)
    taken = [sequence.batch(step)[0] for step in [0, 0, 1, 2, 3, 4, 5]]
    assert taken == [0, 0, 1, 2, 3, 4, 5]
    sequence._ahead._pool.shutdown()
    if ahead:
        assert sorted(read) == list(range(6 + ahead))


def test_several_threads_may_ask_for_batches_that_are_read_ahead():
    sequence, _ = recorded(3)
    failures = []

    def take():
        for step in range(300):
            try:
                if sequence.batch(step)[0] != step:
                    failures.append(step)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_batches_in_another_order_are_not_read_ahead():
    sequence, read = recorded(3)
    sequence.batch(0)
    taken = [sequence.batch(step)[0] for step in [9, 7, 30, 8]]
    assert taken == [9, 7, 30, 8]
    sequence._ahead._pool.shutdown()
    assert sorted(read) == [0, 1, 2, 3, 7, 8, 9, 30]


def test_dataset_reads_ahead_too(found):
    files, labels, _ = found
    design = GroupBatches(labels, 2, 2, seed=1)
    reader = ImageReader(files, VIEW, crop="position", seed=2)
    dataset = gathered_dataset(design, reader.random, labels, ahead=2)
    sequence = BatchSequence(design, reader.random, labels)
    for step, (images, own) in enumerate(dataset.take(6)):
        expected = sequence.batch(step)
        np.testing.assert_array_equal(images, expected[0])
        np.testing.assert_array_equal(own, expected[1])


def test_error_ahead_waits_for_its_batch():
    def read(positions, step):
        if step == 2:
            raise OSError("the disk is gone")
        return positions

    design = GroupBatches(np.repeat(np.arange(6), 2), 2, 2)
    sequence = BatchSequence(design, read, ahead=3)
    sequence.batch(0)
    sequence.batch(1)
    with pytest.raises(OSError, match="the disk is gone"):
        sequence.batch(2)


def test_images_in_folders_are_labeled(tmp_path):
    for name in ("b/1", "a/2", "b/deep/3"):
        file = tmp_path / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((2, 2, 3), "uint8")).save(file)
    files, labels, class_names = labeled_images(tmp_path)
    assert files == tuple(tmp_path / f for f in ("a/2.png", "b/1.png", "b/deep/3.png"))
    assert labels.tolist() == [0, 1, 1]
    assert labels.dtype == np.int64
    assert class_names == ("a", "b")
