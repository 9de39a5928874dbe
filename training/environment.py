"""Describe what a run ran on."""

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import keras


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
