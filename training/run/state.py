"""Write, read and lock the state of a run on disk."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdml.files import Lock, written


class RunInUseError(RuntimeError):
    """Another process trains into the same run folder."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends.

    Args:
        path: A file that is there as long as the lock is held.

    Raises:
        RunInUseError: Another process holds the lock.
    """
    lock = _lock(path)
    try:
        path.write_text(f"{os.getpid()}\n", encoding="utf-8")
        try:
            yield
        finally:
            path.unlink()
    finally:
        lock.close()


def _lock(path: Path) -> Lock:
    while True:
        with suppress(FileNotFoundError):  # whoever held it has just removed the file
            path.touch()
            try:
                return Lock(path)
            except BlockingIOError:
                process = path.read_text(encoding="utf-8").strip() or "unknown"
                raise RunInUseError(
                    f"Process {process} trains into {path.with_suffix('')}. Wait for "
                    "it, or choose another folder with --run."
                ) from None


def write_state(
    path: Path, groups: Mapping[str, Sequence[Any]], about: Mapping[str, Any]
) -> None:
    """Write variables and what else a run needs to go on.

    The file that is there stays as it is until the new one is on the disk: an
    interruption at any moment, or a full disk, leaves the old one.

    Args:
        path: The file.
        groups: Lists of Keras variables or arrays, by name.
        about: Values that JSON can hold.
    """
    arrays: dict[str, Any] = {
        f"{name}/{i}": _to_numpy(value)
        for name, values in groups.items()
        for i, value in enumerate(values)
    }
    text = np.frombuffer(json.dumps(about).encode(), dtype="uint8")
    try:
        with written(path) as new, new.open("wb") as file:
            np.savez(file, about=text, **arrays)
    except OSError as error:
        raise OSError(
            error.errno,
            f"The state of the run could not be written ({error.strerror}). Nothing is "
            "lost: free some space and run the same command again; it resumes from the "
            "last state",
            str(path),
        ) from error


def read_state(path: Path) -> tuple[dict[str, list[np.ndarray]], dict[str, Any]]:
    """Read what `write_state` wrote: arrays by group, and the other values."""
    groups: dict[str, list[np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(file["about"].tobytes())
        for name in file.files:
            if name != "about":
                group, _ = name.rsplit("/", 1)
                groups.setdefault(group, []).append(file[name])
    return groups, about


def _to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    return keras.ops.convert_to_numpy(value)
