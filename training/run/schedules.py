"""Build the learning-rate schedule of a recipe."""

from typing import Any

from keras import ops
from keras.optimizers import schedules

from ..recipe.recipe import Fit


class WarmUp(schedules.LearningRateSchedule):
    """A schedule times min(1, step / warmup_steps).

    Args:
        schedule: Maps a step to a rate.
        warmup_steps: Number of steps, at least 1.
    """

    def __init__(
        self, schedule: schedules.LearningRateSchedule, warmup_steps: int
    ) -> None:
        self.schedule = schedule
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of a step, counted from 0."""
        rate = self.schedule(step)
        return rate * ops.minimum(ops.cast(step, rate.dtype) / self.warmup_steps, 1.0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        schedule = schedules.serialize(self.schedule)
        return {"schedule": schedule, "warmup_steps": self.warmup_steps}


def build_schedule(settings: Fit) -> float | schedules.LearningRateSchedule:
    """Build the learning rate of a run from the recipe's `[fit]`.

    Returns:
        A number, or a schedule that counts batches from 0. A cosine over `minutes` is
        a number, which `training.run.time_budget.RateByTime` changes.
    """
    rate, warmup = settings.learning_rate, settings.warmup_steps
    if is_by_time(settings):
        return rate
    if settings.schedule == "constant" and not warmup:
        return rate
    if settings.schedule in ("cosine", "constant"):
        return _cosine(settings)
    schedule = _decay(settings)
    return WarmUp(schedule, warmup) if warmup else schedule


def is_by_time(settings: Fit) -> bool:
    """Return whether the learning rate follows the clock."""
    return bool(settings.minutes) and settings.schedule == "cosine"


def _cosine(settings: Fit) -> schedules.LearningRateSchedule:
    rate, warmup = settings.learning_rate, settings.warmup_steps
    decay = settings.steps - warmup
    flat = {"alpha": 1.0} if settings.schedule == "constant" else {}
    if not warmup:
        return schedules.CosineDecay(rate, decay)
    return schedules.CosineDecay(
        0.0, decay, warmup_target=rate, warmup_steps=warmup, **flat
    )


def _decay(settings: Fit) -> schedules.LearningRateSchedule:
    rate, factor = settings.learning_rate, settings.decay_factor
    if settings.schedule == "exponential":
        return schedules.ExponentialDecay(
            rate, settings.decay_every, factor, staircase=True
        )
    if settings.schedule == "inverse_time":
        return schedules.InverseTimeDecay(rate, settings.decay_every, 1.0)
    at = settings.decay_at
    # Keras lets a value hold up to and with its boundary.
    return schedules.PiecewiseConstantDecay(
        [step - 1 for step in at], [rate * factor**n for n in range(len(at) + 1)]
    )
