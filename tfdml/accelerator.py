"""Large matrix products on the accelerator of the Keras backend, if it has one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Multiplier"]

_WORTH_IT = 2**30  # multiplications; below, the way to the accelerator takes longer


class Multiplier:
    """Multiplies rows with a matrix that stays where it is.

    The product is computed in float32, never in the shorter numbers that accelerators
    put in its place: on the GPU of the backend for large products, where Keras is
    imported and has one, else on all cores of the CPU.

    Args:
        matrix: float32 `[N, D]`.
    """

    def __init__(self, matrix: NDArray[np.float32]) -> None:
        self._matrix = matrix
        self._there: Any = None

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return `rows @ matrix.T`, float32 `[R, N]`, an array of the caller's own."""
        small = rows.size * len(self._matrix) < _WORTH_IT
        if small or not _has_gpu():
            return rows @ self._matrix.T
        from keras import ops

        with _full_precision():
            if self._there is None:
                self._there = ops.transpose(ops.convert_to_tensor(self._matrix))
            product = ops.matmul(ops.convert_to_tensor(rows), self._there)
        # A tensor's memory may be the backend's, and read-only.
        return np.array(ops.convert_to_numpy(product))


def _backend() -> str:
    """Return the backend that runs, "" where Keras has not been imported."""
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras else ""


def _has_gpu() -> bool:
    backend = _backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_logical_devices("GPU"))
    if backend == "jax":
        import jax

        return jax.default_backend() == "gpu"
    if backend == "torch":
        import torch

        return torch.cuda.is_available()
    return False


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keep NVIDIA's TF32, of 10 bits, out of float32 products."""
    backend = _backend()
    if backend == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
        return
    if backend == "tensorflow":
        from tensorflow.config import experimental

        allowed = experimental.tensor_float_32_execution_enabled()
        allow = experimental.enable_tensor_float_32_execution
    else:
        from torch.backends.cuda import matmul

        allowed = matmul.allow_tf32

        def allow(value: bool) -> None:
            matmul.allow_tf32 = value

    allow(False)
    try:
        yield
    finally:
        allow(allowed)
