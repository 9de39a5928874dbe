"""Run branches and loops on every backend, compiled or not."""

from collections.abc import Callable
from typing import Any, TypeVar

import keras
from keras import ops

from tfdml._core.tensors import Tensor

F = TypeVar("F", bound=Callable)


def cond(condition: Tensor, if_true: Callable, if_false: Callable) -> Any:
    """Run one of two functions. See `keras.ops.cond`."""
    if _is_known(condition):
        return if_true() if condition else if_false()
    return ops.cond(condition, if_true, if_false)


def while_loop(condition: Callable, body: Callable, state: tuple[Any, ...]) -> Any:
    """Run a function while the condition on its state holds. See `keras.ops`."""
    if _is_known(*state):
        while condition(*state):
            state = body(*state)
        return state
    return ops.while_loop(condition, body, state)


def without_autograph(function: F) -> F:
    """Keep AutoGraph from rewriting a function, and all that it calls.

    In a `tf.function` of the user AutoGraph would translate the Python code of a loss,
    which has no branch on the value of a tensor, and would warn of each construct that
    it cannot translate. Keras leaves AutoGraph out of `fit` in the same way.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)


def _is_known(*values: Tensor) -> bool:
    """Return whether Python may branch: JAX outside `jit` recompiles branches."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return not any(isinstance(x, jax.core.Tracer) for x in values)
