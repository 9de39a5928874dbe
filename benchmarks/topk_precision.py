"""Time of TopKPrecisionLoss, forward and backward, over the bare similarity matrix.

    python -m benchmarks.topk_precision

The floor is what any pair-based loss must do: the matrix product S = X X^T of unit
rows, and its gradient. Both are compiled by XLA and run alternately; the smallest time
of each counts. KERAS_BACKEND chooses TensorFlow or JAX.
"""

import os
import time
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from tfdml.losses import TopKPrecisionLoss
from tfdml.pairs import cosine_similarities

DIMENSION = 128
CLASS_SIZE = 8


def compiled_gradient(function: Callable) -> Callable[[np.ndarray], None]:
    """Compile value and gradient; the result waits until both are there."""
    if keras.backend.backend() == "jax":
        import jax

        both = jax.jit(jax.value_and_grad(function))
        return lambda x: jax.block_until_ready(both(x))
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def both(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return value, tape.gradient(value, x)

    return lambda x: [t.numpy() for t in both(x)]


def smallest_times(
    functions: dict[str, Callable], x: np.ndarray, seconds: float = 6.0
) -> dict[str, float]:
    times = {name: float("inf") for name in functions}
    for function in functions.values():
        function(x)  # compiles
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        for name, function in functions.items():
            start = time.perf_counter()
            function(x)
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    print(f"{keras.backend.backend()}, {os.cpu_count()} cores, D = {DIMENSION}")
    print(f"{'B':>6}{'floor ms':>12}{'loss ms':>12}{'ratio':>8}")
    for batch in (64, 256, 1024, 4096):
        generator = np.random.default_rng(batch)
        x = generator.normal(size=(batch, DIMENSION)).astype("float32")
        weights = generator.normal(size=(batch, batch)).astype("float32")
        labels = ops.convert_to_tensor(np.arange(batch) // CLASS_SIZE)
        loss = TopKPrecisionLoss()
        functions = {
            "floor": compiled_gradient(
                lambda x, w=weights: ops.sum(cosine_similarities(x, x) * w)
            ),
            "loss": compiled_gradient(lambda x, y=labels, loss=loss: loss(y, x)),
        }
        times = smallest_times(functions, x)
        floor, ours = 1000 * times["floor"], 1000 * times["loss"]
        print(f"{batch:6}{floor:12.2f}{ours:12.2f}{ours / floor:8.2f}", flush=True)


if __name__ == "__main__":
    main()
