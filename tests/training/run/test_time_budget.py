"""A run that its time ends: the learning rate follows the clock."""

import json
import math

import keras
import pytest

from tests.support.clock import Clock
from tests.support.training_runs import fit
from tests.training.run.test_averages import X, Y
from training.recipe.fit_table import Fit
from training.run.build_optimizer import build_optimizer
from training.run.progress import Progress
from training.run.schedules import build_schedule
from training.run.state import read_state
from training.run.time_budget import RateByTime, rate_at

pytestmark = pytest.mark.backend

STEPS = 4  # of an epoch
SECONDS = 10  # of the run; a step takes one


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return X, Y

    def begin_at(self, epoch):
        pass

    def positions(self, step):
        return [0]


class Steps(keras.callbacks.Callback):
    """Lets a second go by for each step, and notes its learning rate."""

    def __init__(self, clock, killed_at=None):
        super().__init__()
        self.clock, self.killed_at, self.rates = clock, killed_at, []

    def on_train_batch_begin(self, batch, logs=None):
        if len(self.rates) == self.killed_at:
            raise KeyboardInterrupt
        self.rates.append(float(self.model.optimizer.learning_rate))

    def on_train_batch_end(self, batch, logs=None):
        self.clock.now += 1


def trained(path, settings, killed_at=None, validation_seconds=0):
    model = keras.Sequential([keras.Input(X.shape[1:]), keras.layers.Dense(2)])
    model.compile(build_optimizer(settings), "mse")
    clock, batches = Clock(), Batches()
    progress = Progress(path, batches, ("a",), 0, minutes=settings.minutes, clock=clock)
    progress.begin(model)
    steps = Steps(clock, killed_at)
    validation = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(
            clock, "now", clock.now + validation_seconds
        )
    )
    try:
        model.fit(
            batches,
            epochs=99,
            initial_epoch=progress.epochs_done,
            callbacks=[RateByTime(settings, progress), steps, validation, progress],
            verbose=0,
        )
    except KeyboardInterrupt:
        progress.close()
    return progress, steps.rates


def cosine(*seconds):
    return pytest.approx(
        [(1 + math.cos(math.pi * second / SECONDS)) / 2 for second in seconds]
    )


SETTINGS = Fit(minutes=SECONDS / 60, learning_rate=1.0)


def test_rate_falls_to_the_end_of_the_time_and_the_run_ends_there(tmp_path):
    progress, rates = trained(tmp_path / "s", SETTINGS)
    assert rates == cosine(*range(10))
    assert (progress.epochs_done, progress.steps_done) == (3, 10)  # 4, 4 and 2
    assert progress.seconds_left == 0
    assert progress.is_over
    assert not progress.is_impatient
    assert progress.history["learning_rate"] == cosine(3, 7, 9)
    assert read_state(tmp_path / "s")[1]["steps"] == 10


def test_killed_run_has_the_rest_of_its_time(tmp_path):
    trained(tmp_path / "s", SETTINGS, killed_at=6)
    # The first epoch and its 4 seconds are in the state; the second is lost.
    progress, rates = trained(tmp_path / "s", SETTINGS)
    assert rates == cosine(*range(4, 10))
    assert (progress.epochs_done, progress.steps_done) == (3, 10)


def test_run_whose_time_is_over_is_not_trained_on(tmp_path):
    trained(tmp_path / "s", SETTINGS)
    model = keras.Sequential([keras.Input(X.shape[1:]), keras.layers.Dense(2)])
    model.compile(build_optimizer(SETTINGS), "mse")
    resumed = Progress(tmp_path / "s", Batches(), ("a",), 0, minutes=SECONDS / 60)
    resumed.begin(model)
    assert resumed.is_over
    assert resumed.steps_done == 10


def test_time_of_validation_counts(tmp_path):
    progress, rates = trained(tmp_path / "s", SETTINGS, validation_seconds=6)
    assert rates == cosine(*range(4))
    assert (progress.epochs_done, progress.steps_done) == (1, 4)
    assert progress.is_over


def test_other_schedules_count_steps_also_of_a_run_in_minutes():
    settings = Fit(minutes=1, schedule="exponential", decay_every=2, decay_factor=0.5)
    schedule = build_schedule(settings)
    assert float(schedule(4)) == pytest.approx(settings.learning_rate / 4)


def test_rate_rises_over_the_steps_of_the_warm_up():
    settings = Fit(minutes=4, learning_rate=0.5, warmup_steps=4)
    assert [rate_at(settings, step, 0.0) for step in (0, 1, 4, 9)] == [
        0.0,
        0.125,
        0.5,
        0.5,
    ]
    assert rate_at(settings, 2, 0.5) == pytest.approx(0.125)
    assert rate_at(settings, 100, 1.0) == 0.0


@pytest.mark.slow
def test_fit_says_what_a_time_was_enough_for(shapes, tmp_path, capsys):
    run = tmp_path / "run"
    assert fit(shapes / "recipe.toml", run, "--minutes", "0.001") == 0
    printed = capsys.readouterr().out
    results = json.loads((run / "metrics.json").read_text())
    steps = results["steps_of_training"]
    assert steps >= 1
    assert f"Trained {steps:,} step" in printed
    assert "0.001 minutes, 6 steps per epoch" in printed
    assert f"{steps:,} step" in (run / "report.html").read_text("utf-8")
