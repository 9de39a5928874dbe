"""Print the progress of a run: a line per epoch, and the steps as a long job."""

import math
import time
from typing import Any

import keras

from tfdml import progress as jobs

from ..reports.text import is_further, metric_text, metric_title
from .progress import Progress

_LONG = 10  # seconds of a first step that are worth a word


class Console(keras.callbacks.Callback):
    """Print a line per epoch, and show the steps as `tfdml.progress` shows a long job.

    The line has the loss, the metrics of training and validation, the learning rate,
    the time of a step (without the first of the epoch, which may have been compiled)
    and how long the rest will take. To be the last of the callbacks, and closed.

    Args:
        epochs: Number of epochs of the run; None where its time ends it.
        steps: Number of steps in an epoch.
        progress: Knows the best epoch.
    """

    takes_arrays = True

    def __init__(self, epochs: int | None, steps: int, progress: Progress) -> None:
        super().__init__()
        self._epochs = epochs
        self._steps = steps
        self._progress = progress
        done = progress.epochs_done * steps
        total = epochs * steps if epochs else None
        self._job = jobs.Progress("training", total, "steps", done=done)
        self._times: list[float] = []
        self._batches = 0  # of the epoch, so far
        self._has_begun = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin to show the steps."""
        self._job.note = "compiling"
        self._job.begin()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Name the epoch."""
        self._times = [time.monotonic()]
        self._job.what = f"epoch {epoch + 1}{self._of_all}"

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Count a step."""
        self._times = [*self._times[:2], time.monotonic()]
        self._batches = batch + 1
        self._job.update()
        if not self._has_begun:
            self._has_begun = True
            seconds = self._times[1] - self._times[0]
            if seconds >= _LONG:
                about = "most of them to compile it: the next ones are fast"
                self._job.say(f"The first step took {seconds:.0f} seconds, {about}.")
        note = []
        if self._epochs is None:
            note.append(f"{jobs.clock(self._progress.seconds_left)} left")
        # Not that of this step, which would have to be waited for.
        if not math.isnan(self._progress.loss):
            note.append(f"loss {self._progress.loss:.4g}")
        self._job.note = ", ".join(note)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the line of the epoch."""
        logs, now = logs or {}, time.monotonic()
        _, first, *last = self._times
        trained = last[-1] if last else first
        groups = [_values(logs, "val_", inside=False)]
        if validation := _values(logs, "val_", inside=True):
            groups.append(f"validation {validation}")
        if on_test := _on_test(self._progress.test_curve, epoch + 1):
            groups.append(on_test)
        about = []
        if "learning_rate" in logs:
            about.append(f"rate {logs['learning_rate']:.3g}")
        if last:
            step = (trained - first) / (self._batches - 1)
            about.append(f"{_short(step)} per step")
            left = self._progress.seconds_left
            if self._epochs is not None:
                epochs_left = self._epochs - epoch - 1
                left = epochs_left * (self._steps * step + now - trained)
            about += [f"{jobs.clock(left)} left"] if left else []
        groups += [", ".join(about)] if about else []
        groups += ["best so far"] if self._progress.best_epoch == epoch + 1 else []
        width = len(str(self._epochs or 0))
        number = f"{epoch + 1:>{width}}{self._of_all}"
        self._job.say(f"Epoch {number}: {'; '.join(groups)}")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print why the run ended early."""
        self._job.end()
        is_last = self._progress.epochs_done == self._epochs
        if self._progress.is_impatient and not is_last:
            print(
                f"Stopped after epoch {self._progress.epochs_done}: none of the last "
                f"`patience` epochs was better than epoch {self._progress.best_epoch}."
            )

    @property
    def _of_all(self) -> str:
        return f"/{self._epochs}" if self._epochs else ""

    def close(self) -> None:
        """Remove the bar of a run that has ended by an error."""
        self._job.end()


def _on_test(curve: dict[str, list[float]], epoch: int) -> str:
    """Write the main value on test images, if they were measured after this epoch."""
    if not curve or curve["epoch"][-1] != epoch:
        return ""
    name = next(name for name in curve if name not in ("epoch", "step"))
    text = metric_text(name, curve[name][-1])
    return f"test {metric_title(name)} {text} (for the record)"


def _values(logs: dict[str, Any], prefix: str, *, inside: bool) -> str:
    """Write the values whose names begin with a prefix, or those of all others."""
    shown = {
        name.removeprefix(prefix): value
        for name, value in logs.items()
        if name.startswith(prefix) == inside
        and name not in ("learning_rate", "triplets")
        and not is_further(name)
    }
    shown.pop("recall_at_1", None)  # it is Precision@1
    return ", ".join(f"{metric_title(n)} {metric_text(n, v)}" for n, v in shown.items())


def _short(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.{1 if seconds < 0.1 else 0}f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else jobs.clock(seconds)
