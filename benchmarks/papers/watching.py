"""Watch a run: end it at a NaN, measure each epoch, take its time."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfdml.losses import MultiSimilarityLoss

UNINFORMATIVE = "batches_without_informative_pair"


class EndOnNaN(keras.callbacks.Callback):
    """Ends the training after the first epoch whose loss or weights are not finite.

    Attributes:
        epoch: Which that was, from 0; None as long as there is none.
    """

    epoch: int | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Look at the loss and at the weights."""
        finite = math.isfinite((logs or {})["loss"])
        if not finite or not all(
            np.isfinite(w).all() for w in self.model.get_weights()
        ):
            self.end(epoch)

    def end(self, epoch: int) -> None:
        """End the training after this epoch."""
        self.epoch = epoch
        self.model.stop_training = True


class FiniteEvaluation(keras.callbacks.Callback):
    """Measures after each epoch, and ends the training where it cannot.

    Args:
        measured: Returns the metrics of the network as it is, None where its embeddings
            are not finite. They go into the logs, their names after "val_".
        end: What ends the training; called before this.
    """

    def __init__(
        self, measured: Callable[[], dict[str, float] | None], end: EndOnNaN
    ) -> None:
        super().__init__()
        self._measured = measured
        self._end = end

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the metrics to the logs."""
        if self._end.epoch is not None:
            return
        metrics = self._measured()
        if metrics is None:
            self._end.end(epoch)
        elif logs is not None:
            logs |= {f"val_{name}": value for name, value in metrics.items()}


class EpochTimes(keras.callbacks.Callback):
    """Takes the time of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._start = 0.0
        self._seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin."""
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """End."""
        self._seconds.append(time.perf_counter() - self._start)

    def median(self) -> float:
        """Return the median of the seconds of all epochs but the first."""
        return statistics.median(self._seconds[1:])


class UninformativeBatches(keras.metrics.Mean):
    """The share of batches in which mining finds no pair.

    Of Wang, Han et al., CVPR 2019, supplement, section 4.

    Args:
        loss: The loss, which is 0 exactly then.
    """

    def __init__(self, loss: MultiSimilarityLoss) -> None:
        super().__init__(UNINFORMATIVE)
        self._loss = loss

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count a batch."""
        super().update_state(self._loss(y_true, y_pred) == 0)
