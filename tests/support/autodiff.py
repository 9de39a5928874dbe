"""Value and gradient of a function, on whichever backend Keras runs."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
# `jit_compile` on torch wants a C++ compiler and warns.
JIT = [False] if BACKEND == "torch" else [False, True]
# Keras 3.15 on torch computes `segment_sum` in float32, whatever its input.
SEGMENT_ERROR = 1e-6 if BACKEND == "torch" else 1e-12
# JAX compiles each function for each shape and type: `make test-all` runs what is rare.
slow_on_jax = [pytest.mark.slow] if BACKEND == "jax" else []


def value_and_gradient(
    function: Callable, x: np.ndarray, *, compiled: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return `function(x)`, a scalar, and its gradient at x."""
    return differentiated(function, compiled=compiled)(x)


def tensors(*arrays: np.ndarray) -> list[Any]:
    """Return arrays as tensors, as a loss hands them to its `pair_loss`."""
    return [keras.ops.convert_to_tensor(array) for array in arrays]


def differentiated(
    function: Callable, *, compiled: bool = False, signature: Any = None
) -> Callable[..., tuple[np.ndarray, Any]]:
    """Return a function that gives the value of a scalar function and its gradient.

    Args:
        function: Maps `x`, an array or a dictionary of arrays, and further arrays to a
            scalar.
        compiled: Whether it is compiled by XLA, once for all arguments of one shape.
            Torch compiles nothing.
        signature: `tf.TensorSpec`s of the arguments: a TensorFlow graph for them.

    Returns:
        Maps the arguments of `function` to the value and the gradient with respect to
        `x`.
    """
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def both(x, *others):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = function(x, *others)
            return value, tape.gradient(value, x)

        if compiled or signature:
            both = tf.function(both, jit_compile=compiled, input_signature=signature)
        convert = tf.convert_to_tensor
    elif BACKEND == "jax":
        import jax

        both = jax.value_and_grad(function)
        both = jax.jit(both) if compiled else both
        convert = jax.numpy.asarray
    else:
        import torch

        def both(x, *others):
            x = keras.tree.map_structure(lambda t: t.requires_grad_(), x)
            value = function(x, *others)
            value.backward()
            return value, keras.tree.map_structure(lambda t: t.grad, x)

        convert = torch.tensor

    def arrays(*arguments):
        arguments = keras.tree.map_structure(convert, arguments)
        return keras.tree.map_structure(keras.ops.convert_to_numpy, both(*arguments))

    return arrays
