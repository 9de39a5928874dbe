"""Value and gradient of a function, on whichever backend Keras runs."""

from collections.abc import Callable

import keras
import numpy as np

BACKEND = keras.backend.backend()


def value_and_gradient(
    function: Callable, x: np.ndarray, *, compiled: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return `function(x)`, a scalar, and its gradient at x."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = function(x)
            return value, tape.gradient(value, x)

        if compiled:
            both = tf.function(both, jit_compile=True)
        value, gradient = both(tf.convert_to_tensor(x))
        return value.numpy(), gradient.numpy()
    if BACKEND == "jax":
        import jax

        both = jax.value_and_grad(function)
        value, gradient = (jax.jit(both) if compiled else both)(jax.numpy.asarray(x))
        return np.asarray(value), np.asarray(gradient)
    import torch

    tensor = torch.tensor(x, requires_grad=True)
    value = function(tensor)
    value.backward()
    return value.detach().numpy(), tensor.grad.numpy()
