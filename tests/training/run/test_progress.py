"""What a run remembers of its epochs, and which one is the best."""

import json
import math
from itertools import permutations
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.training.run.test_averages import X, Y, compiled, trainable
from training.run.averages import averaged
from training.run.progress import Progress, SampledTriplets, triplets_of
from training.run.state import read_state

pytestmark = pytest.mark.backend


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return X, Y

    def begin_at(self, epoch):
        pass


class Values(keras.callbacks.Callback):
    """Adds a value to the logs of each epoch, and remembers the weights."""

    def __init__(self, values):
        super().__init__()
        self.values, self.seen = values, []

    def on_epoch_end(self, epoch, logs=None):
        logs["val_score"] = self.values[epoch]
        with averaged(self.model):
            self.seen.append(self.model.get_weights())


def trained(path, values, model=None, patience=0, **arguments):
    model = model or compiled()
    batches = Batches()
    progress = Progress(path, batches, ("a",), patience, "val_score", **arguments)
    progress.begin(model)
    evaluation = Values(values)
    model.fit(
        batches,
        epochs=len(values),
        initial_epoch=progress.epochs_done,
        callbacks=[evaluation, progress],
        verbose=0,
    )
    return model, progress, evaluation.seen


def assert_same(received, expected):
    for a, b in zip(received, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("max", [0.2, 0.5, 0.5, 0.1], 2),
        ("min", [0.2, 0.5, 0.1, 0.3], 3),
        ("max", [math.nan, 0.1, math.nan, 0.0], 2),
    ],
)
def test_best_epoch_is_the_first_of_the_best_value(tmp_path, mode, values, best):
    model, progress, seen = trained(tmp_path / "s", values, mode=mode)
    assert progress.best_epoch == best
    progress.load_best(model)
    assert_same(model.get_weights(), seen[best - 1])
    progress.load_last(model)
    assert_same(trainable(model), seen[-1][: len(trainable(model))])


def test_patience_waits_for_smaller_values_where_they_are_better(tmp_path):
    values = [0.5, 0.4, 0.4, 0.6, 0.1]
    _, progress, _ = trained(tmp_path / "s", values, mode="min", patience=2)
    assert progress.epochs_done == 4
    assert progress.is_over


def test_history_has_the_learning_rate_at_the_end_of_each_epoch(tmp_path):
    model = compiled(schedule="exponential", decay_every=2, decay_factor=0.5)
    _, progress, _ = trained(tmp_path / "s", [1.0, 2.0], model)
    assert progress.history["learning_rate"] == pytest.approx([0.05, 0.025])


def test_weights_of_a_run_without_validation_are_the_averages(tmp_path):
    model = compiled()
    batches = Batches()
    progress = Progress(tmp_path / "s", batches, ("a",), 0)
    progress.begin(model)
    model.fit(batches, epochs=2, callbacks=[progress], verbose=0)
    ended = trainable(model)  # `fit` leaves the averages in the model
    raw = read_state(tmp_path / "s")[0]["model"]
    assert any(np.any(a != b) for a, b in zip(ended, raw, strict=False))
    # As when all epochs were done before the process was killed:
    again = compiled()
    resumed = Progress(tmp_path / "s", batches, ("a",), 0)
    resumed.begin(again)
    resumed.load_best(again)
    assert_same(trainable(again), ended)


def test_large_state_is_written_once_a_minute_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("training.run.progress._SMALL_STATE", 0)
    written = []

    class Written(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            progress.wait()
            written.append(read_state(tmp_path / "s")[1]["epochs"])
            if epoch == 1:  # a minute goes by
                progress._written -= 60

    model, batches = compiled(), Batches()
    progress = Progress(tmp_path / "s", batches, ("a",), 0)
    progress.begin(model)
    model.fit(batches, epochs=5, callbacks=[progress, Written()], verbose=0)
    assert written == [0, 0, 3, 3, 5]


def test_state_taken_up_knows_the_best_epoch(tmp_path):
    trained(tmp_path / "s", [0.9, 0.2], mode="max")
    _, progress, seen = trained(tmp_path / "s", [0.9, 0.2, 0.5, 0.95], mode="max")
    assert progress.best_epoch == 4
    assert len(seen) == 2
    assert json.loads(json.dumps(progress.history))["val_score"] == [
        0.9,
        0.2,
        0.5,
        0.95,
    ]


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_triplets_equal_their_enumeration(classes):
    labels = np.random.default_rng(classes).integers(0, classes, 9)
    expected = sum(
        labels[a] == labels[p] != labels[n] for a, p, n in permutations(range(9), 3)
    )
    assert triplets_of(labels) == expected


class GrowingBatches:
    """Two batches an epoch, each with more positives than the one before."""

    def __len__(self):
        return 2

    def positions(self, step):
        return np.arange(step + 3)


def test_epochs_add_up_also_after_an_interruption():
    labels = np.array([0, 0, 1, 0, 1, 0, 1, 1])
    of_step = [triplets_of(labels[: step + 3]) for step in range(4)]
    progress = SimpleNamespace(history={}, steps_done=2)
    logs = {}
    SampledTriplets(GrowingBatches(), labels, progress).on_epoch_end(0, logs)
    assert logs["triplets"] == sum(of_step[:2])
    whole = logs["triplets"]
    progress.steps_done = 4
    progress.history = {"loss": [1.0]}  # of a run that began before they were counted
    SampledTriplets(GrowingBatches(), labels, progress).on_epoch_end(1, logs)
    assert logs["triplets"] == sum(of_step)
    progress.history = {"triplets": [whole]}
    SampledTriplets(GrowingBatches(), labels, progress).on_epoch_end(1, logs)
    assert logs["triplets"] == sum(of_step)


def test_triplets_of_top_k_precision_are_its_misplaced_pairs():
    """|P| = |N| of each of 3, 4, 5 and 6 images."""
    progress = SimpleNamespace(history={}, steps_done=2)
    count = SampledTriplets(GrowingBatches(), np.zeros(9, int), progress)
    logs = {"misplaced_pairs": 2.0}
    count.on_epoch_end(0, logs)
    assert logs["triplets"] == 2 * 7
    progress.history = {"misplaced_pairs": [2.0], "triplets": [14]}
    progress.steps_done = 4
    logs = {"misplaced_pairs": 1.0}
    count.on_epoch_end(1, logs)
    assert logs["triplets"] == 14 + 11
