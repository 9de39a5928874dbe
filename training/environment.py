"""Describe what a run ran on."""

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import keras

_MOST_COMPILED = 4 * 10**9  # bytes


def environment() -> dict[str, str]:
    """Return the date, the versions of what computes, and the devices, as text."""
    backend = keras.backend.backend()
    packages = ["keras", backend, "numpy"]
    now = datetime.datetime.now(datetime.UTC)
    return {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "devices": ", ".join(_devices(backend)),
        "cpu_cores": str(cpu_cores()),
    }


def keep_compiled() -> None:
    """Keep on disk what JAX compiles for a GPU, for the next runs.

    It goes to `tfdml/jax` in `XDG_CACHE_HOME`, or in `~/.cache`, 4 GB at most; to where
    `JAX_COMPILATION_CACHE_DIR` says, where that is set. Nothing is kept for processors:
    what is compiled for one can stop a process on another.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    is_set = bool(getattr(jax.config, "jax_compilation_cache_dir", None))
    if jax.default_backend() != "gpu" or is_set:
        return
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    jax.config.update("jax_compilation_cache_dir", str(Path(cache, "tfdml", "jax")))
    jax.config.update("jax_compilation_cache_max_size", _MOST_COMPILED)


def cpu_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _devices(backend: str) -> list[str]:
    if backend == "torch":  # whose devices Keras 3.15 does not list
        import torch

        return [f"gpu:{i}" for i in range(torch.cuda.device_count())] or ["cpu:0"]
    return keras.distribution.list_devices()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # as tensorflow-cpu
        return "unknown"
