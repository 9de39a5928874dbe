"""Build the optimizer of a recipe, with learning rates for parts of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from ..recipe.fit_table import OPTIMIZERS, Fit
from .schedules import build_schedule


@dataclass(frozen=True)
class VariableGroup:
    """Variables that learn otherwise than the rest.

    Args:
        variables: Variables of the model.
        rate: They learn with so many times the learning rate, at least 0.
        first_step: The first step, counted from 0, in which they learn.
    """

    variables: Sequence[keras.Variable]
    rate: float = 1.0
    first_step: int = 0


def build_optimizer(
    settings: Fit, parts: Sequence[VariableGroup] = ()
) -> keras.optimizers.Optimizer:
    """Build the optimizer of a run.

    Args:
        settings: The recipe's `[fit]`.
        parts: Variables that learn at a rate of their own or not from the beginning.

    Returns:
        The optimizer. Its schedule counts batches, also with gradient accumulation.
    """
    kind = getattr(keras.optimizers, OPTIMIZERS[settings.optimizer])
    arguments: dict[str, Any] = {"weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        arguments["momentum"] = settings.momentum
    if settings.epsilon:
        arguments["epsilon"] = settings.epsilon
    if settings.clip_norm:
        arguments["global_clipnorm"] = settings.clip_norm
    if settings.clip_value:
        arguments["clipvalue"] = settings.clip_value
    if settings.gradient_accumulation > 1:
        arguments["gradient_accumulation_steps"] = settings.gradient_accumulation
    if settings.ema_momentum:
        arguments["use_ema"] = True
        arguments["ema_momentum"] = settings.ema_momentum
    parts = [part for part in parts if part.rate != 1 or part.first_step]
    if parts or settings.l2_penalty or settings.epsilon:
        kind = _with_parts(kind, parts, settings)
    return kind(build_schedule(settings), **arguments)


def _with_parts(kind: Any, parts: Sequence[VariableGroup], settings: Fit) -> Any:
    """Make an optimizer that does with each variable what its part says."""
    part_of = {id(variable): part for part in parts for variable in part.variables}
    penalty = settings.l2_penalty
    epsilon = settings.epsilon if issubclass(kind, keras.optimizers.Adam) else 0.0
    every = settings.gradient_accumulation

    class WithParts(kind):
        # Keras 3.15 counts steps in `iterations`; Adam corrects its averages by it.
        _updates_missed = 0

        def build(self, variables: list[keras.Variable]) -> None:
            own = [part_of.get(id(v), VariableGroup(())) for v in variables]
            self._rates = tuple(part.rate for part in own)
            self._first_steps = tuple(part.first_step for part in own)
            super().build(variables)

        @property
        def iterations(self) -> Any:
            if not self._updates_missed:
                return super().iterations
            return ops.maximum(super().iterations - self._updates_missed, 0)

        def _backend_apply_gradients(self, grads: Any, variables: Any) -> None:
            # Before they are clipped together and, in accumulation, summed.
            steps = [self._first_steps[self._get_variable_index(v)] for v in variables]
            grads = [
                self._from(step, gradient)
                for step, gradient in zip(steps, grads, strict=True)
            ]
            super()._backend_apply_gradients(grads, variables)

        def _from(self, first_step: int, value: Any) -> Any:
            """Return the value, and 0 before a step."""
            if not first_step:
                return value
            return ops.where(self._iterations >= first_step, value, 0)

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            # The variable may come as the backend's own; Keras 3.15 knows its place.
            place = self._get_variable_index(variable)
            first_step = self._first_steps[place]
            rate = ops.cast(self._rates[place] * learning_rate, variable.dtype)
            if penalty:
                # A gradient of 0 leaves the optimizer's averages at 0 too.
                shrink = self._from(first_step, penalty * variable)
                gradient = ops.cast(gradient, variable.dtype) + shrink
            if settings.weight_decay:
                shrink = variable * (settings.weight_decay * rate)
                self.assign_sub(variable, self._from(first_step, shrink))
            self._updates_missed = first_step // every
            if epsilon:
                # Keras adds epsilon to the root before its correction, so that 0.01 or
                # 1 act much larger in the first thousand steps than in the papers.
                power = ops.cast(self.iterations + 1, "float32")
                self.epsilon = epsilon * ops.sqrt(1 - ops.power(self.beta_2, power))
            try:
                super().update_step(gradient, variable, rate)
            finally:
                self._updates_missed = 0
                if epsilon:
                    self.epsilon = epsilon

        def _use_weight_decay(self, variable: Any) -> bool:
            return False  # `update_step` does it, at the rate of the variable

    return WithParts
