"""Keep the state of a run from epoch to epoch, and stop it in time."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdml.models import lora_merged

from .averages import averaged, take_averages
from .batches import ImageBatches
from .state import Snapshot, StateWriter, read_state

# Losses are looked at together: TensorFlow copies a number to the host after all steps
# that were called before, and meanwhile none is called.
_AT_ONCE = 32
_SOME = 4  # enough if the last ones were looked at long ago
_LONG_AGO = 2.0  # seconds
_UNDER_WAY = 2  # the latest, which may not have been computed yet
_SMALL_STATE = 64 * 2**20  # bytes that are written after each epoch
_PAUSE = 60.0  # seconds between two larger ones: they cost the steps some time


class DivergedError(RuntimeError):
    """The loss or a weight became infinite or NaN."""


class Progress(keras.callbacks.Callback):
    """Write the whole state of a run after its epochs, and stop the run in time.

    A state of more than 64 MiB is written once a minute and after the last epoch, a
    smaller one after each.

    The state is the weights, those of the optimizer, the weights of the best epoch by
    validation, and the history, to which it adds the learning rate at the end of each
    epoch. A run that goes on from it sees the batches, and has the weights, that it
    would have had. Where the optimizer averages weights, the best are averages.

    No step waits for this: the state is written while the next epoch goes on, and the
    losses are looked at some steps later.

    Args:
        path: File of the state.
        batches: The training batches.
        paths: Path of each training image, to name those of a broken batch.
        patience: After how many epochs that are no better the run ends; 0: never.
        monitored: Which value of an epoch tells how good it is. With None, or without
            it in the logs, no epoch is the best, and the last weights count.
        mode: "max" if larger is better, "min" if smaller is.
        minutes: How long the run may train, all its parts together; 0: no limit.
        embedder: What is saved when the run diverges; by default what is trained, which
            with a loss on proxies ends in these.
        clock: Returns seconds.
    """

    takes_arrays = True

    def __init__(
        self,
        path: Path,
        batches: ImageBatches,
        paths: tuple[str, ...],
        patience: int,
        monitored: str | None = "val_precision_at_1",
        mode: str = "max",
        *,
        minutes: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        embedder: keras.Model | None = None,
    ) -> None:
        super().__init__()
        self._limit = 60 * minutes
        self._clock = clock
        self._is_out_of_time = False
        self._embedder = embedder
        self._path = path
        self._batches = batches
        self._paths = paths
        self._patience = patience
        self._best_weights: Snapshot | None = None
        self._writer = StateWriter(path)
        self._losses: list[tuple[int, Any]] = []
        self._looked = time.monotonic()
        self._best: float | None = None
        self._monitored = monitored
        self._sign = {"max": 1, "min": -1}[mode]
        self._waited = 0
        self._started = self._written = clock()
        self._seconds_before = 0.0
        self._step = self._written_step = 0
        self.loss = math.nan  # the last that was looked at
        self.epochs_done = 0
        self.steps_done = 0
        self.best_epoch = 0  # counted from 1; 0: none yet
        self.history: dict[str, list[float]] = {}
        self.test_curve: dict[str, list[float]] = {}  # of `CurveOnTest`

    @property
    def seconds(self) -> float:
        """How long the run has trained, all its parts together."""
        return self._seconds_before + self._clock() - self._started

    @property
    def time_spent(self) -> float:
        """Share of the time that has passed, from 0 to 1; 0 without a limit."""
        return min(1.0, self.seconds / self._limit) if self._limit else 0.0

    @property
    def seconds_left(self) -> float:
        """How long the run may still train; without a limit infinite."""
        return max(0.0, self._limit - self.seconds) if self._limit else math.inf

    @property
    def is_impatient(self) -> bool:
        """Whether patience has come to its end."""
        return bool(self._patience) and self._waited >= self._patience

    @property
    def is_over(self) -> bool:
        """Whether patience or the time has come to its end."""
        return self.is_impatient or self._is_out_of_time

    def begin(self, model: keras.Model) -> None:
        """Take up the state of a compiled model, if there is one, or write the first.

        Raises:
            OSError: The first state cannot be written.
        """
        self.set_model(model)
        model.optimizer.build(model.trainable_variables)
        if not self._path.exists():
            self._write()
            self.wait()
            return
        groups, about = read_state(self._path)
        _assign(model.variables, groups["model"])
        _assign(model.optimizer.variables, groups["optimizer"])
        if "best" in groups:
            self._best_weights = Snapshot.of_arrays(groups["best"])
        self._best = about["best"]
        self.best_epoch = about["best_epoch"]
        self._waited = about["waited"]
        self._seconds_before = about["seconds"]
        self.epochs_done = about["epochs"]
        # A state of an earlier version has whole epochs alone.
        self.steps_done = about.get("steps", self.epochs_done * len(self._batches))
        self._is_out_of_time = self.seconds_left == 0 and self.epochs_done > 0
        self.history = about["history"]
        self.test_curve = about.get("test_curve", {})

    def load_last(self, model: keras.Model) -> None:
        """Give a model the weights that it ends with: averages where there are any."""
        take_averages(model)

    def load_best(self, model: keras.Model) -> None:
        """Give a model the weights of the best epoch; without validation, the last."""
        if self._best_weights:
            model.set_weights(self._best_weights.arrays())
        else:
            self.load_last(model)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the steps of the run, and take the batches of this epoch."""
        self._batches.begin_at(epoch)
        self._step = epoch * len(self._batches)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Count the step, and stop the run when its time is over.

        It stops at the first loss that is no number too, some steps later.

        Raises:
            DivergedError: It names the step and lists the images of the batch.
        """
        self._losses.append((self._step + batch, (logs or {})["loss"]))
        self.steps_done = self._step + batch + 1
        is_last = batch + 1 == len(self._batches)
        if self.seconds_left == 0:
            self._is_out_of_time = self.model.stop_training = is_last = True
        if is_last:  # what is measured now must be finite
            self._look_at_losses(len(self._losses))
            return
        waiting = len(self._losses) - _UNDER_WAY
        is_long_ago = time.monotonic() - self._looked >= _LONG_AGO
        if waiting >= (_SOME if is_long_ago else _AT_ONCE):
            self._look_at_losses(waiting)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the results of an epoch and begin to write the state, if it is time.

        Raises:
            DivergedError: A weight is infinite or NaN, or was when the state of the
                epoch before was written.
            OSError: That state could not be written; the one before it is whole.
        """
        self.wait()
        logs = {} if logs is None else logs
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        self.epochs_done = epoch + 1
        if self._monitored in self.history:
            self._compare(self.history[self._monitored][-1])
        self._is_out_of_time |= self.seconds_left == 0  # validation took the rest
        if self.is_over:
            self.model.stop_training = True
        is_last = self.is_over or self.epochs_done == (self.params or {}).get("epochs")
        has_waited = self._clock() - self._written >= _PAUSE
        if is_last or has_waited or self._state_bytes() <= _SMALL_STATE:
            self._write()

    def wait(self) -> None:
        """Wait until the state of the last epoch is on the disk.

        Raises:
            DivergedError: A weight is infinite or NaN: there is no such state.
            OSError: It could not be written; the one before it is whole.
        """
        if not self._writer.wait():
            self._stop(self._written_step - 1, "a weight became NaN")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Wait until the last state is on the disk.

        Raises:
            DivergedError, OSError: As `wait`.
        """
        self.wait()

    def close(self) -> None:
        """Let a state that is being written be finished, whatever becomes of it."""
        self._writer.close()

    def _look_at_losses(self, count: int) -> None:
        """Look at the first losses that have not been looked at."""
        self._looked = time.monotonic()
        seen, self._losses = self._losses[:count], self._losses[count:]
        for step, loss in seen:
            self.loss = float(loss)
            if not math.isfinite(self.loss):
                self._stop(step, "the loss became infinite or NaN")

    def _compare(self, value: float) -> None:
        better = self._best is None or self._sign * (value - self._best) > 0
        if not better or math.isnan(value):
            self._waited += 1
            return
        with averaged(self.model):
            self._best_weights = Snapshot(self.model.weights)
        self._best, self.best_epoch, self._waited = value, self.epochs_done, 0

    def _stop(self, step: int, what: str) -> None:
        self.close()  # the last good state may be on its way to the disk
        listed = self._path.with_name("diverged_batch.txt")
        names = [self._paths[i] for i in self._batches.positions(step)]
        listed.write_text("".join(f"{name}\n" for name in names), "utf-8")
        groups, about = read_state(self._path)
        _assign(self.model.variables, groups["model"])
        good = self._path.with_name("last_good.keras")
        saved = self._embedder or self.model
        with lora_merged(saved):
            saved.save(good)
        epoch, batch = divmod(step, len(self._batches))
        raise DivergedError(
            f"At step {step + 1} (batch {batch + 1} of epoch {epoch + 1}) {what}. The "
            f"images of that batch are named in {listed}; the weights after epoch "
            f"{about['epochs']} are in {good}. A lower learning rate, a warm-up or "
            "float32 may help: change the recipe and start over with --restart."
        )

    def _write(self) -> None:
        groups = {
            "model": Snapshot(self.model.variables),
            "optimizer": Snapshot(self.model.optimizer.variables),
            "best": self._best_weights,
        }
        about = {
            "best": self._best,
            "best_epoch": self.best_epoch,
            "waited": self._waited,
            "epochs": self.epochs_done,
            "steps": self.steps_done,
            "seconds": self.seconds,
            "history": self.history,
            "test_curve": self.test_curve,
        }
        self._writer.write(groups, about)
        self._written_step = self.steps_done
        self._written = self._clock()

    def _state_bytes(self) -> int:
        variables = [*self.model.variables, *self.model.optimizer.variables]
        return sum(4 * math.prod(variable.shape) for variable in variables)


def _assign(variables: list[keras.Variable], values: list[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


MISPLACED = "misplaced_pairs"
"""The metric of top-k precision: their mean number for an image of the batch."""


def triplets_of(labels: np.ndarray) -> int:
    """Count the triplets of a batch, sum over classes c of n_c (n_c - 1) (B - n_c).

    A triplet is an anchor, a positive and a negative.

    Args:
        labels: Class ids, integers `[B]`.

    Example:
        >>> triplets_of(np.array([0, 0, 1]))
        2
    """
    counts = np.unique(labels, return_counts=True)[1]
    return int((counts * (counts - 1) * (len(labels) - counts)).sum())


class SampledTriplets(keras.callbacks.Callback):
    """Add `triplets` to the logs of each epoch: all that the run has sampled so far.

    Of top-k precision these are the misplaced pairs, |P| = |N| of each image (Lu et
    al., ICCV 2019, section 4.5); of any other loss all triplets of its
    batches, whatever it makes of them.

    Args:
        batches: The training batches.
        labels: Class of each training image, integers `[N]`.
        progress: What remembers the counts of the epochs before.
    """

    def __init__(
        self, batches: ImageBatches, labels: np.ndarray, progress: Progress
    ) -> None:
        super().__init__()
        self._batches = batches
        self._labels = labels
        self._progress = progress

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the batches of the epoch."""
        logs = {} if logs is None else logs
        history = self._progress.history
        done = history.get("triplets", [])
        # A run that began before they were counted is counted from its beginning.
        before, first = (done[-1], epoch) if 0 < len(done) == epoch else (0, 0)
        misplaced = None
        if MISPLACED in logs:
            misplaced = [*history.get(MISPLACED, []), logs[MISPLACED]]
        counts = [self._of_epoch(e, misplaced) for e in range(first, epoch + 1)]
        logs["triplets"] = before + sum(counts)

    def _of_epoch(self, epoch: int, misplaced: list[float] | None) -> float:
        steps = len(self._batches)
        end = min((epoch + 1) * steps, self._progress.steps_done)
        batches = map(self._batches.positions, range(epoch * steps, end))
        if misplaced is None:
            return sum(triplets_of(self._labels[batch]) for batch in batches)
        return round(misplaced[epoch] * sum(len(batch) for batch in batches))
