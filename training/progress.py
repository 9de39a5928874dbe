"""What a run remembers from epoch to epoch, and when it must stop."""

import math
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from training.batches import ImageBatches
from training.state import read_state, write_state

__all__ = ["DivergedError", "Progress"]

MONITORED = "val_precision_at_1"


class DivergedError(RuntimeError):
    """The loss or a weight became infinite or NaN."""


class Progress(keras.callbacks.Callback):
    """Writes the whole state of a run after each epoch, and stops it in time.

    The state is the weights, those of the optimiser, the weights of the best epoch by
    Precision@1 on the validation classes, and the history. A run that goes on from it
    sees the batches, and has the weights, that it would have had.

    Args:
        path: File of the state.
        batches: The training batches.
        paths: Path of each training image, to name those of a broken batch.
        patience: After how many epochs that are no better the run ends; 0: never.
    """

    def __init__(
        self, path: Path, batches: ImageBatches, paths: tuple[str, ...], patience: int
    ) -> None:
        super().__init__()
        self._path = path
        self._batches = batches
        self._paths = paths
        self._patience = patience
        self._best_weights: list[np.ndarray] = []
        self._best = -math.inf
        self._waited = 0
        self._started = time.monotonic()
        self._seconds_before = 0.0
        self._step = 0
        self.epochs_done = 0
        self.history: dict[str, list[float]] = {}

    @property
    def seconds(self) -> float:
        """How long the run has trained, all its parts together."""
        return self._seconds_before + time.monotonic() - self._started

    @property
    def is_over(self) -> bool:
        """Whether patience has come to its end."""
        return bool(self._patience) and self._waited >= self._patience

    def begin(self, model: keras.Model) -> None:
        """Take up the state of a compiled model, if there is one, or write the first.

        Raises:
            OSError: The first state cannot be written.
        """
        self.set_model(model)
        model.optimizer.build(model.trainable_variables)
        if not self._path.exists():
            self._write()
            return
        groups, about = read_state(self._path)
        _assign(model.variables, groups["model"])
        _assign(model.optimizer.variables, groups["optimizer"])
        self._best_weights = groups.get("best", [])
        self._best = about["best"] if self._best_weights else -math.inf
        self._waited = about["waited"]
        self._seconds_before = about["seconds"]
        self.epochs_done = about["epochs"]
        self.history = about["history"]

    def load_best(self, model: keras.Model) -> None:
        """Give a model the weights of the best epoch; without validation, the last."""
        if self._best_weights:
            model.set_weights(self._best_weights)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the steps of the run, and take the batches of this epoch."""
        self._batches.begin_at(epoch)
        self._step = epoch * len(self._batches)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Stop the run at the first loss that is no number.

        Raises:
            DivergedError: It names the step and lists the images of the batch.
        """
        step = self._step + batch
        if not math.isfinite(float((logs or {})["loss"])):
            self._stop(step, "the loss became infinite or NaN")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the results of an epoch and write the state.

        Raises:
            DivergedError: A weight is infinite or NaN.
            OSError: The state cannot be written; the one before it is whole.
        """
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        weights = self.model.get_weights()
        if not all(np.isfinite(w).all() for w in weights):
            self._stop(self._step + len(self._batches) - 1, "a weight became NaN")
        if MONITORED in self.history:
            value = self.history[MONITORED][-1]
            if value > self._best:
                self._best, self._best_weights, self._waited = value, weights, 0
            else:
                self._waited += 1
        self.epochs_done = epoch + 1
        self._write()
        if self.is_over:
            self.model.stop_training = True

    def _stop(self, step: int, what: str) -> None:
        listed = self._path.with_name("diverged_batch.txt")
        names = [self._paths[i] for i in self._batches.positions(step)]
        listed.write_text("".join(f"{name}\n" for name in names), "utf-8")
        _assign(self.model.variables, read_state(self._path)[0]["model"])
        good = self._path.with_name("last_good.keras")
        self.model.save(good)
        epoch, batch = divmod(step, len(self._batches))
        raise DivergedError(
            f"At step {step + 1} (batch {batch + 1} of epoch {epoch + 1}) {what}. The "
            f"images of that batch are named in {listed}; the weights from before this "
            f"epoch are in {good}. A lower learning rate, a warm-up or float32 may "
            "help: change the recipe and start anew with --restart."
        )

    def _write(self) -> None:
        groups = {
            "model": self.model.variables,
            "optimizer": self.model.optimizer.variables,
            "best": self._best_weights,
        }
        about = {
            "best": self._best if self._best_weights else None,
            "waited": self._waited,
            "epochs": self.epochs_done,
            "seconds": self.seconds,
            "history": self.history,
        }
        write_state(self._path, groups, about)


def _assign(variables: list[keras.Variable], values: list[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
