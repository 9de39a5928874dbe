"""Branches and loops that run on every backend, compiled or not."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tfdml.ops._pairs import Tensor


def cond(condition: Tensor, if_true: Callable, if_false: Callable) -> Any:
    """Run one of two functions. See `keras.ops.cond`."""
    if _is_known(condition):
        return if_true() if condition else if_false()
    return ops.cond(condition, if_true, if_false)


def while_loop(condition: Callable, body: Callable, state: tuple[Any, ...]) -> Any:
    """Run a function until the condition on its state fails. See `keras.ops`."""
    if _is_known(*state):
        while condition(*state):
            state = body(*state)
        return state
    return ops.while_loop(condition, body, state)


def _is_known(*values: Tensor) -> bool:
    """Whether Python may branch: JAX outside `jit` would compile each branch anew."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return not any(isinstance(x, jax.core.Tracer) for x in values)
