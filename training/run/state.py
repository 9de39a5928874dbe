"""Copy, write, read and lock the state of a run."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

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


class Snapshot:
    """The values of variables at one moment, copied where they are computed.

    Args:
        variables: The variables. What becomes of them changes nothing here.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self._values: list[Any] = [_copied(variable) for variable in variables]

    @classmethod
    def of_arrays(cls, arrays: Sequence[np.ndarray]) -> Self:
        """Return one that has been read from a file."""
        snapshot = cls([])
        snapshot._values = list(arrays)
        return snapshot

    def arrays(self) -> list[np.ndarray]:
        """Return the values, on the host. They are brought there once."""
        self._values = [_to_numpy(value) for value in self._values]
        return self._values


class StateWriter:
    """Write the states of a run, one after another, while it goes on.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "state")
        self._last: Future[bool] | None = None

    def write(
        self, groups: Mapping[str, Snapshot | None], about: Mapping[str, Any]
    ) -> None:
        """Begin to write a state, which `wait` must have been called before.

        Args:
            groups: Values by name; None for no values.
            about: Values that JSON can hold.
        """
        self._last = self._thread.submit(self._written, groups, dict(about))

    def wait(self) -> bool:
        """Wait until the last state is on the disk.

        Returns:
            Whether it is: none is written of weights that are infinite or NaN.

        Raises:
            OSError: It could not be written.
        """
        last, self._last = self._last, None
        return True if last is None else last.result()

    def close(self) -> None:
        """Finish what is being written, without an error."""
        self._thread.shutdown()

    def _written(
        self, groups: Mapping[str, Snapshot | None], about: Mapping[str, Any]
    ) -> bool:
        arrays = {name: s.arrays() if s else [] for name, s in groups.items()}
        if not all(np.isfinite(values).all() for values in arrays["model"]):
            return False
        write_state(self._path, arrays, about)
        return True


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


def _copied(variable: keras.Variable) -> Any:
    if keras.backend.backend() == "torch":
        return variable.value.detach().clone()
    # JAX gives the arrays of variables away to the next step; TensorFlow, which does
    # not, copies before it writes.
    return keras.ops.copy(variable.value)


def _to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    return keras.ops.convert_to_numpy(value)
