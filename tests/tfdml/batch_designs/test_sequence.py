"""Batches of data from a design, for `fit` and for `tf.data`."""

import keras
import numpy as np
import pytest

from tests.support.autodiff import BACKEND
from tfdml.batch_designs import (
    BatchSequence,
    GroupBatches,
    PairBatches,
    ShuffledBatches,
    gathered_dataset,
    index_dataset,
)
from tfdml.losses import TopKPrecisionLoss, WeightedContrastiveLoss

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.backend
tensorflow_only = pytest.mark.skipif(BACKEND != "tensorflow", reason="uses tf.data")

LABELS = np.repeat(np.arange(6), 3)
IMAGES = np.arange(18, dtype="float32")[:, None] * np.ones((1, 2), "float32")
DESIGN = GroupBatches(LABELS, 2, 2, seed=1)  # 3 batches a pass


def run(steps, start=0):
    """The positions of the batches of a run, by the definition."""
    return [DESIGN.batches(s // 3)[s % 3] for s in range(start, start + steps)]


def fitted(dataset, epochs, **options):
    """The positions of the images of each training step that `fit` made."""
    steps = []

    class Recorder(keras.layers.Layer):
        """Keeps what comes by in a weight, which a callback reads."""

        def build(self, shape):
            size = (DESIGN.batch_size,)
            self.seen = self.add_weight(shape=size, trainable=False)

        def call(self, x):
            self.seen.assign(x[:, 0])
            return x

    class Reader(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if BACKEND == "jax":
                self.model.jax_state_sync()
            steps.append(keras.ops.convert_to_numpy(recorder.seen).astype(int))

    recorder = Recorder()
    # Not built before `fit`, which then looks at a batch.
    model = keras.Sequential([recorder, keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model.fit(
        dataset,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[Reader()],
        **options,
    )
    return steps


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_fit_takes_each_batch_of_the_run_once_and_in_order(steps):
    sequence = BatchSequence(DESIGN, IMAGES, LABELS, steps_per_epoch=steps)
    np.testing.assert_array_equal(fitted(sequence, 4), run(4 * steps))


def test_run_can_begin_at_any_step():
    sequence = BatchSequence(DESIGN, IMAGES, LABELS, steps_per_epoch=2, start_step=7)
    np.testing.assert_array_equal(fitted(sequence, 3), run(6, start=7))


def test_epoch_is_a_pass_unless_told_otherwise():
    assert len(BatchSequence(DESIGN, IMAGES, LABELS)) == len(DESIGN) == 3


def test_interrupted_epoch_is_taken_again():
    sequence = BatchSequence(DESIGN, IMAGES, LABELS)
    sequence.on_epoch_end()  # as Keras does before it begins
    sequence.on_epoch_begin()
    first = sequence[0]
    sequence.on_epoch_end()
    np.testing.assert_array_equal(sequence[0][0], first[0])


def test_positions_say_which_images_a_batch_has():
    sequence = BatchSequence(DESIGN, IMAGES, LABELS, start_step=4)
    np.testing.assert_array_equal(sequence.positions(4), run(1, start=4)[0])
    np.testing.assert_array_equal(sequence[0][0][:, 0], sequence.positions(4))


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _words(positions):
    return np.array([f"word {i}" for i in positions])


def _shuffled(kind):
    """Return 17, 16, ... 0 with an index that says otherwise, as after a shuffle."""
    return kind(np.arange(18)[::-1], index=np.roll(np.arange(18), 5))


def sources():
    """Inputs of every kind, and what a batch of them is, given the positions."""
    return {
        "array": (IMAGES, lambda i: IMAGES[i]),
        "dict": (
            {"image": IMAGES, "size": LABELS},
            lambda i: {"image": IMAGES[i], "size": LABELS[i]},
        ),
        "tuple": ((IMAGES, LABELS), lambda i: (IMAGES[i], LABELS[i])),
        "list": ([IMAGES, LABELS], lambda i: [IMAGES[i], LABELS[i]]),
        "numbers": (list(range(18)), lambda i: i),
        "tuple of numbers": (tuple(range(18)), lambda i: i),
        "NumPy's numbers": (list(np.arange(18)), lambda i: i),
        "tensor": (keras.ops.convert_to_tensor(IMAGES), lambda i: IMAGES[i]),
        "memoryview": (memoryview(IMAGES), lambda i: IMAGES[i]),
        "read-only": (_read_only(IMAGES), lambda i: IMAGES[i]),
        "strided": (IMAGES[::-1, ::-1], lambda i: IMAGES[::-1][i]),
        "text": (np.array([f"word {i}" for i in range(18)]), _words),
        "shuffled column": (_shuffled(pandas.Series), lambda i: 17 - i),
        "shuffled frame": (_shuffled(pandas.DataFrame), lambda i: 17 - i[:, None]),
        "frames": (
            {"left": _shuffled(pandas.DataFrame), "right": IMAGES},
            lambda i: {"left": 17 - i[:, None], "right": IMAGES[i]},
        ),
        "function": (lambda i: IMAGES[i] + 1, lambda i: IMAGES[i] + 1),
    }


@pytest.mark.parametrize("kind", sources())
def test_inputs_keep_their_structure(kind):
    x, expected = sources()[kind]
    positions = run(1)[0]
    given, labels = BatchSequence(DESIGN, x, LABELS)[0]
    keras.tree.assert_same_structure(given, expected(positions))
    for left, right in zip(
        keras.tree.flatten(given), keras.tree.flatten(expected(positions)), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(labels, LABELS[positions])


@pytest.mark.parametrize(
    "labels",
    [
        pandas.Series(LABELS, index=np.roll(np.arange(18), 7)),
        pandas.Series(LABELS, index=np.roll(np.arange(18), 7), dtype="category"),
        pandas.Series(LABELS, index=[f"row {i}" for i in range(18)]),
        pandas.DataFrame({"label": LABELS}, index=np.arange(18)[::-1]),
        LABELS.tolist(),
        tuple(LABELS.tolist()),
        LABELS.astype("float32"),
        keras.ops.convert_to_tensor(LABELS),
        LABELS[:, None],
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_labels_of_every_kind_reach_their_images(labels):
    design = GroupBatches(labels, 2, 2, seed=1)
    np.testing.assert_array_equal(design.batches(0), DESIGN.batches(0))
    _, given = BatchSequence(design, IMAGES, labels)[0]
    np.testing.assert_array_equal(np.ravel(given), LABELS[run(1)[0]])
    if BACKEND == "tensorflow":
        _, given = next(iter(gathered_dataset(design, IMAGES, labels)))
        np.testing.assert_array_equal(np.ravel(given), LABELS[run(1)[0]])


@tensorflow_only
@pytest.mark.parametrize("kind", sources())
def test_dataset_gives_what_the_sequence_gives(kind):
    x, _ = sources()[kind]
    sequence = BatchSequence(DESIGN, x, LABELS, steps_per_epoch=9, start_step=2)
    dataset = gathered_dataset(DESIGN, x, LABELS, start_step=2)
    for index, batch in enumerate(dataset.take(7)):
        left, right = keras.tree.flatten(batch), keras.tree.flatten(sequence[index])
        for a, b in zip(left, right, strict=True):
            if kind == "text" and a.dtype == "string":
                a, b = a.numpy().astype("U9"), b.astype("U9")
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    assert {type(part) for part in dataset.element_spec} <= {dict, tuple} | {
        type(dataset.element_spec[1])
    }


def test_without_labels_a_batch_is_what_x_gives():
    (given,) = BatchSequence(DESIGN, (IMAGES, LABELS))[0]
    np.testing.assert_array_equal(given[1], LABELS[run(1)[0]])

    def read(positions):
        return IMAGES[positions], LABELS[positions], np.ones(len(positions))

    assert len(BatchSequence(DESIGN, read)[0]) == 3


def test_model_of_several_inputs_is_fitted():
    left, right = keras.Input((2,), name="left"), keras.Input((2,), name="right")
    merged = keras.layers.Concatenate()([left, right])
    model = keras.Model([left, right], keras.layers.Dense(3)(merged))
    for x in ({"left": IMAGES, "right": -IMAGES}, (IMAGES, -IMAGES)):
        model.compile("sgd", loss=TopKPrecisionLoss())
        history = model.fit(BatchSequence(DESIGN, x, LABELS), epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()


def test_loss_of_random_pairs_is_fitted():
    counts = np.bincount(LABELS)
    design = PairBatches(LABELS, 4, positive_probability=0.5)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    loss = WeightedContrastiveLoss(counts, positive_probability=0.5)
    model.compile("sgd", loss=loss)
    sequence = BatchSequence(design, IMAGES, LABELS, steps_per_epoch=4)
    history = model.fit(sequence, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@tensorflow_only
def test_index_dataset_gives_the_positions():
    dataset = index_dataset(DESIGN, start_step=4)
    np.testing.assert_array_equal(list(dataset.take(8)), run(8, start=4))
    assert dataset.element_spec.shape == (4,)


@tensorflow_only
def test_fit_goes_on_through_a_dataset_from_epoch_to_epoch():
    dataset = gathered_dataset(DESIGN, IMAGES, LABELS)
    steps = fitted(dataset, 3, steps_per_epoch=2)
    np.testing.assert_array_equal(steps, run(6))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": IMAGES[:5]}, r"`x` must hold arrays of 18 rows.*\(5, 2\)"),
        ({"x": {"a": IMAGES, "b": LABELS[1:]}}, r"`x` must .*18 rows.*\(17,\)"),
        ({"x": (IMAGES, 3)}, r"`x` must .*18 rows.*\(\)"),
        ({"y": LABELS[:4]}, r"`y` must hold arrays of 18 rows.*\(4,\)"),
        ({"y": LABELS.astype(str)}, r"`y` must hold numbers.*encode_labels.*<U"),
        ({"y": [None] * 18}, r"`y` must hold numbers or text.*NoneType"),
        ({"x": [{}] * 18}, r"`x` must hold arrays of 18 rows"),
        ({"x": iter(IMAGES)}, r"`x` must be an array or a sequence.*iterator"),
        ({"x": [[1], [1, 2]] * 9}, r"`x` must be an array: .*inhomogeneous"),
        ({"x": np.ma.masked_less(IMAGES, 1)}, r"`x` .* missing values.*row 0"),
        ({"steps_per_epoch": 0}, r"`steps_per_epoch` .* 1.*=0"),
        ({"start_step": -1}, r"`start_step` .* 0.*=-1"),
    ],
)
def test_data_that_does_not_fit_the_design_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BatchSequence(DESIGN, **{"x": IMAGES, "y": LABELS, **arguments})


def test_several_threads_read_the_same_batches():
    from concurrent.futures import ThreadPoolExecutor

    design = ShuffledBatches(18, 3, seed=2)
    sequence = BatchSequence(design, IMAGES, LABELS, steps_per_epoch=600)
    steps = np.random.default_rng(0).permutation(600)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda s: sequence[s][0][:, 0].astype(int), steps))
    for step, positions in zip(steps, read, strict=True):
        np.testing.assert_array_equal(positions, design.batches(step // 6)[step % 6])
