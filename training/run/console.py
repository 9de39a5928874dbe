"""Print the progress of a run: one line per epoch, and within it a bar or lines."""

import sys
import time
from typing import Any

import keras
from tqdm import tqdm

from ..reports.text import is_further, metric_text, metric_title
from .progress import Progress

_LONG = 10  # seconds of a first step that are worth a word


class Console(keras.callbacks.Callback):
    """Print one line per epoch, and within it a bar in a terminal or a line a minute.

    The line has the loss, the metrics of training and validation, the learning rate,
    the time of a step (without the first of the epoch, which may have been compiled)
    and how long the rest will take. To be the last of the callbacks.

    Args:
        epochs: Number of epochs of the run.
        steps: Number of steps in an epoch.
        progress: Knows the best epoch.
    """

    takes_arrays = True

    def __init__(self, epochs: int, steps: int, progress: Progress) -> None:
        super().__init__()
        self._epochs = epochs
        self._steps = steps
        self._progress = progress
        self._bar: Any = None
        self._times: list[float] = []
        self._epochs_left = epochs
        self._said = 0.0
        self._has_begun = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin a bar."""
        self._times = [time.monotonic()]
        self._epochs_left = self._epochs - epoch - 1
        self._said = self._times[0]
        self._bar = tqdm(
            total=self._steps,
            desc=f"epoch {epoch + 1}/{self._epochs}",
            unit="step",
            leave=False,
            disable=not sys.stderr.isatty(),
        )

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Move the bar."""
        self._times = [*self._times[:2], time.monotonic()]
        if not self._has_begun:
            self._has_begun = True
            seconds = self._times[1] - self._times[0]
            if seconds >= _LONG:
                about = "most of them to compile it: the next ones are fast"
                tqdm.write(f"The first step took {seconds:.0f} seconds, {about}.")
        if self._bar.disable:
            self._say(batch + 1, logs or {})
            return
        # Not a number for each step: the bar draws itself ten times a second at most,
        # and a loss of this step would have to be waited for.
        if self._bar.update() or batch + 1 == self._steps:
            self._bar.set_postfix(loss=f"{self._progress.loss:.4g}")

    def _say(self, step: int, logs: dict[str, Any]) -> None:
        """Print a line in a file or pipe, at most one a minute."""
        _, first, *last = self._times
        if step == self._steps or self._times[-1] < self._said + 60:
            return
        self._said = self._times[-1]
        about = [f"loss {float(logs.get('loss', float('nan'))):.4g}"]
        if last:
            seconds = (last[-1] - first) / (step - 1)
            steps_left = self._steps - step + self._epochs_left * self._steps
            about += [
                f"{_short(seconds)} per step",
                f"{_clock(steps_left * seconds)} left",
            ]
        print(f"  step {step}/{self._steps}: {', '.join(about)}", flush=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the line of the epoch."""
        self._bar.close()
        logs, now = logs or {}, time.monotonic()
        _, first, *last = self._times
        trained = last[-1] if last else first
        groups = [_values(logs, "val_", inside=False)]
        if validation := _values(logs, "val_", inside=True):
            groups.append(f"validation {validation}")
        about = []
        if "learning_rate" in logs:
            about.append(f"rate {logs['learning_rate']:.3g}")
        if last:
            step = (trained - first) / (self._steps - 1)
            about.append(f"{_short(step)} per step")
            left = self._epochs_left * (self._steps * step + now - trained)
            about += [f"{_clock(left)} left"] if left else []
        groups += [", ".join(about)] if about else []
        groups += ["best so far"] if self._progress.best_epoch == epoch + 1 else []
        number = f"{epoch + 1:>{len(str(self._epochs))}}"
        print(f"Epoch {number}/{self._epochs}: {'; '.join(groups)}", flush=True)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print why the run ended early."""
        if self._progress.is_over and self._progress.epochs_done < self._epochs:
            print(
                f"Stopped after epoch {self._progress.epochs_done}: none of the last "
                f"`patience` epochs was better than epoch {self._progress.best_epoch}."
            )


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
    return f"{seconds:.1f} s" if seconds < 60 else _clock(seconds)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
