"""Print the progress of a run: a bar within each epoch, then one line."""

import sys
import time
from typing import Any

import keras
from tqdm import tqdm

from training.reports.text import is_further, metric_text, metric_title
from training.run.progress import Progress


class Console(keras.callbacks.Callback):
    """Print one line per epoch, and in a terminal a bar within it.

    The line has the loss, the metrics of training and validation, the learning rate,
    the time of a step (without the first of the epoch, which may have been compiled)
    and how long the rest will take. To be the last of the callbacks.

    Args:
        epochs: Number of epochs of the run.
        steps: Number of steps in an epoch.
        progress: Knows the best epoch.
    """

    def __init__(self, epochs: int, steps: int, progress: Progress) -> None:
        super().__init__()
        self._epochs = epochs
        self._steps = steps
        self._progress = progress
        self._bar: Any = None
        self._times: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin a bar."""
        self._times = [time.monotonic()]
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
        if self._bar.disable:
            return
        # Not a number for each step: the bar draws itself ten times a second at most.
        if self._bar.update() or batch + 1 == self._steps:
            loss = float((logs or {}).get("loss", float("nan")))
            self._bar.set_postfix(loss=f"{loss:.4g}")

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
        epochs_left = self._epochs - epoch - 1
        if last:
            step = (trained - first) / (self._steps - 1)
            about.append(f"{_short(step)} per step")
            left = epochs_left * (self._steps * step + now - trained)
            about += [f"{_clock(left)} left"] if epochs_left else []
        groups += [", ".join(about)] if about else []
        groups += ["best so far"] if self._progress.best_epoch == epoch + 1 else []
        number = f"{epoch + 1:>{len(str(self._epochs))}}"
        print(f"Epoch {number}/{self._epochs}: {'; '.join(groups)}", flush=True)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print why the run ended early."""
        if self._progress.is_over and self._progress.epochs_done < self._epochs:
            print(
                f"Stopped after epoch {self._progress.epochs_done}: no better than "
                f"epoch {self._progress.best_epoch} within `patience` epochs."
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
