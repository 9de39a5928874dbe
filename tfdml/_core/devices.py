"""Find out which Keras backend runs, and whether it computes on a GPU."""

import sys


def running_backend() -> str:
    """Return the backend that runs, "" if Keras has not been imported."""
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras else ""


def has_gpu() -> bool:
    """Return whether Keras has been imported and its backend computes on a GPU."""
    backend = running_backend()
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


def is_out_of_memory(error: Exception) -> bool:
    """Return whether a backend could not do what was asked for lack of memory."""
    names = {kind.__name__ for kind in type(error).__mro__}
    is_named = bool(names & {"ResourceExhaustedError", "OutOfMemoryError"})
    return is_named or "RESOURCE_EXHAUSTED" in str(error)
