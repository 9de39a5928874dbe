"""Compile value and gradient, and time such functions in turn."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Name = TypeVar("Name")


def compiled_gradient(
    function: Callable[..., tuple[Any, Any]],
    inputs: Sequence[np.ndarray],
    trained: int = 1,
) -> Callable[[], None]:
    """Compile a function and its gradient with XLA, on the backend of Keras.

    Args:
        function: Maps the inputs to a scalar and whatever else it computes.
        inputs: Arrays, put on the device once.
        trained: The gradient is that of so many of the first inputs.

    Returns:
        A function that computes everything and waits until it is there.
    """
    import keras

    if keras.backend.backend() == "jax":
        import jax

        arrays = [jax.device_put(array) for array in inputs]
        both = jax.jit(
            jax.value_and_grad(function, argnums=tuple(range(trained)), has_aux=True)
        )
        return lambda: jax.block_until_ready(both(*arrays)) and None
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def value_and_gradient(*tensors: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors[:trained])
            value, more = function(*tensors)
        gradients = tape.gradient(value, tensors[:trained])
        return value, [tf.convert_to_tensor(g) for g in gradients], more

    tensors = [tf.constant(array) for array in inputs]
    # All results come from one compiled operation: the value is there with the rest.
    return lambda: value_and_gradient(*tensors)[0].numpy() and None


def smallest_times(
    functions: Mapping[Name, Callable[[], object]], seconds: float, rounds: int = 3
) -> dict[Name, float]:
    """Run functions in turn and return the smallest time of each in milliseconds.

    They share whatever else the machine does, which makes their ratio steadier than
    the times themselves.

    Args:
        functions: What to time, by name. Each has been called before.
        seconds: For how long.
        rounds: How often at least.
    """
    times = dict.fromkeys(functions, float("inf"))
    stop = time.perf_counter() + seconds
    done = 0
    while done < rounds or time.perf_counter() < stop:
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], 1000 * (time.perf_counter() - start))
        done += 1
    return times
