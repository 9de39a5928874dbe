"""Let the learning rate of a run in minutes follow the clock."""

import math
from typing import Any

import keras

from ..recipe.recipe import Fit
from .progress import Progress

_CHANGES = 200
"""The rate changes about so often: on JAX each time costs some milliseconds."""


def rate_at(settings: Fit, step: int, time_spent: float) -> float:
    """Return the learning rate of a cosine over a time.

    Args:
        settings: The recipe's `[fit]`.
        step: The step, counted from 0, for the warm-up.
        time_spent: Share of the time that has passed, from 0 to 1.

    Returns:
        rate * min(1, step / warmup_steps) * (1 + cos(pi * time_spent)) / 2
    """
    cosine = (1 + math.cos(math.pi * time_spent)) / 2
    warmup = settings.warmup_steps
    return settings.learning_rate * cosine * (min(1.0, step / warmup) if warmup else 1)


class RateByTime(keras.callbacks.Callback):
    """Set the learning rate by the share of the time that a run has spent.

    Args:
        settings: The recipe's `[fit]`, with `minutes`.
        progress: Knows the time and the steps.
    """

    def __init__(self, settings: Fit, progress: Progress) -> None:
        super().__init__()
        self._settings = settings
        self._progress = progress
        self._set_at = -math.inf

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Set the rate if it has changed enough."""
        spent, step = self._progress.time_spent, self._progress.steps_done
        is_warm = step > self._settings.warmup_steps
        if is_warm and spent < self._set_at + 1 / _CHANGES:
            return
        self._set_at = spent
        # Within an epoch JAX holds the optimizer's state apart from it.
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.model.optimizer.learning_rate = rate_at(self._settings, step, spent)
