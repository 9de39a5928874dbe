"""Optimisers by recipe: schedule, clipping, accumulation, rates of parts of a model."""

from typing import Any

import keras

from training.recipe import Fit

__all__ = ["build_optimizer"]

_KINDS = {
    "adamw": keras.optimizers.AdamW,
    "adam": keras.optimizers.Adam,
    "rmsprop": keras.optimizers.RMSprop,
    "sgd": keras.optimizers.SGD,
}


def build_optimizer(
    settings: Fit, backbone: list[keras.Variable]
) -> keras.optimizers.Optimizer:
    """Build the optimiser of a run.

    Args:
        settings: The recipe's `[fit]`.
        backbone: The variables that learn with `backbone_rate` times the learning rate.

    Returns:
        The optimiser. Its schedule counts batches, also with gradient accumulation.
    """
    kind = _KINDS[settings.optimizer]
    arguments: dict[str, Any] = {"weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        arguments["momentum"] = 0.9
    if settings.clip_norm:
        arguments["global_clipnorm"] = settings.clip_norm
    if settings.clip_value:
        arguments["clipvalue"] = settings.clip_value
    every = settings.gradient_accumulation
    if every > 1:
        arguments["gradient_accumulation_steps"] = every
    if settings.backbone_rate != 1:
        slow = {id(variable) for variable in backbone}
        kind = _with_rates(kind, slow, settings.backbone_rate)
    return kind(_schedule(settings), **arguments)


def _schedule(settings: Fit) -> Any:
    warmup = settings.warmup_steps
    if settings.schedule == "constant" and not warmup:
        return settings.learning_rate
    decay = settings.steps - warmup
    flat = {"alpha": 1.0} if settings.schedule == "constant" else {}
    if not warmup:
        return keras.optimizers.schedules.CosineDecay(settings.learning_rate, decay)
    return keras.optimizers.schedules.CosineDecay(
        0.0, decay, warmup_target=settings.learning_rate, warmup_steps=warmup, **flat
    )


def _with_rates(kind: Any, slow: set[int], rate: float) -> Any:
    """Make an optimiser in which some variables learn at another rate."""

    class WithRates(kind):
        def build(self, variables: list[keras.Variable]) -> None:
            self._slow = {i for i, v in enumerate(variables) if id(v) in slow}
            super().build(variables)

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            # The variable may come as the backend's own; Keras 3.15 knows its place.
            share = rate if self._get_variable_index(variable) in self._slow else 1.0
            super().update_step(gradient, variable, share * learning_rate)

        def _use_weight_decay(self, variable: Any) -> bool:
            # Keras 3.15 decays all weights at the full rate: of slow ones none.
            is_slow = self._get_variable_index(variable) in self._slow
            return not is_slow and super()._use_weight_decay(variable)

    return WithRates
