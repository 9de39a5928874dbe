"""Use the averages of the weights that Keras' optimizers keep."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np


def take_averages(model: keras.Model) -> None:
    """Give a compiled model the averages of its weights, if its optimizer keeps any.

    Statistics of batch normalization are not averaged: they are moving averages
    themselves, those of the last steps.
    """
    for variable, average in _pairs(model):
        # On JAX two variables must not share an array: `predict` takes it from both.
        variable.assign(_copy(average))


@contextmanager
def averaged(model: keras.Model) -> Iterator[None]:
    """Give a compiled model the averages of its weights within a block."""
    pairs = _pairs(model)
    before = [_copy(variable) for variable, _ in pairs]
    take_averages(model)
    try:
        yield
    finally:
        for (variable, _), value in zip(pairs, before, strict=True):
            variable.assign(value)


class OnAverages(keras.callbacks.Callback):
    """Run another callback at the end of each epoch on the averages of the weights.

    Args:
        callback: It needs no more than `on_epoch_end`.
    """

    def __init__(self, callback: keras.callbacks.Callback) -> None:
        super().__init__()
        self._callback = callback

    def set_model(self, model: keras.Model) -> None:
        """Pass the model on."""
        super().set_model(model)
        self._callback.set_model(model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Run the callback; the weights are then as before."""
        with averaged(self.model):
            self._callback.on_epoch_end(epoch, logs)


def _copy(variable: keras.Variable) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(variable))


def _pairs(model: keras.Model) -> list[tuple[keras.Variable, keras.Variable]]:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    # Before the first step the averages are 0.
    if not optimizer.use_ema or not int(optimizer.iterations):
        return []
    # Keras 3.15 has them under these names, as its own SwapEMAWeights reads them.
    averages = optimizer._model_variables_moving_average
    return list(zip(optimizer._trainable_variables, averages, strict=True))
