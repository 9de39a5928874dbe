"""Share what XLA has compiled between runs that differ only in the learning rate."""

import dataclasses
from typing import Any

import keras
from keras.optimizers.schedules import LearningRateSchedule

from training.recipe.recipe import Fit
from training.run.schedules import build_schedule


class _Times(LearningRateSchedule):
    """A variable times a schedule."""

    def __init__(self, rate: keras.Variable, schedule: LearningRateSchedule) -> None:
        self.rate = rate
        self.schedule = schedule

    def __call__(self, step: Any) -> Any:
        return self.rate * self.schedule(step)


def share_step(optimizer: keras.optimizers.Optimizer, settings: Fit) -> None:
    """Make the learning rate of a new optimizer an input of the training step.

    As a constant of the step, each rate would be compiled for itself, which takes
    longer than a run on a fast GPU.

    Args:
        optimizer: Of a recipe with a schedule.
        settings: The recipe's `[fit]`.
    """
    schedule = build_schedule(dataclasses.replace(settings, learning_rate=1.0))
    # An attribute of the optimizer is one of its variables.
    optimizer.rate = keras.Variable(settings.learning_rate, trainable=False)
    optimizer.learning_rate = _Times(optimizer.rate, schedule)
