"""Write files and folders as a whole, on the disk, and by one process at a time.

A file is written beside its place and renamed to it when it is on the disk, so a kill,
a full disk or a power cut leaves the old file or the new one, never a mixture. A lock
ends with the process that holds it, however it ends.
"""

import os
import secrets
import shutil
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor, unlock_descriptor

__all__ = [
    "Lock",
    "locked",
    "make_folder",
    "remove_unfinished",
    "replace_folder",
    "sync",
    "whole_folder",
    "written",
]

_UNFINISHED = ".unfinished"


@contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside `path`; the file written there takes its place at the end.

    Several may write the same file at once: the last one to end wins. A kill leaves an
    unfinished file, which `remove_unfinished` removes.

    Args:
        path: The file to write. Its folder must exist.

    Raises:
        OSError: The file cannot be written. The old one, if any, is unharmed.
    """
    path = Path(path)
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        yield new
        sync(new)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    sync(path.parent)


@contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside `path`; the folder made there is renamed to it at the end.

    One process at a time may write the folder. What a killed one has left is removed.

    Args:
        path: The folder to write, which must not exist; folders above it are made.

    Raises:
        FileExistsError: `path` exists.
        OSError: The folder cannot be written; nothing is left of it.
    """
    path = Path(path)
    new = path.with_name(f"{path.name}{_UNFINISHED}")
    shutil.rmtree(new, ignore_errors=True)
    make_folder(path.parent)
    try:
        yield new
        if path.exists():
            raise FileExistsError(f"`path` must not exist. Received: {path}.")
        replace_folder(new, path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def replace_folder(new: Path, path: Path) -> None:
    """Rename a folder to `path` when all of it is on the disk.

    A folder cannot be replaced in one step: the old one is kept as `PATH.replaced`
    until the new one is in its place.

    Args:
        new: The folder, on the same file system as `path`.
        path: The place for it. A folder that exists there is removed.
    """
    for folder, _, files in os.walk(new):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))
    replaced = path.with_name(f"{path.name}.replaced")
    if path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        path.rename(replaced)
    try:
        new.rename(path)
    except BaseException:
        if not path.exists() and replaced.exists():
            replaced.rename(path)
        raise
    sync(path.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def remove_unfinished(folder: Path, name: str = "") -> None:
    """Remove the files that killed writers have left in a folder.

    Args:
        folder: The folder; nobody may be writing the files in it.
        name: Of which file, any if empty.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in folder.iterdir():
            if path.name.startswith(name) and path.suffix == _UNFINISHED:
                path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder with those above it, and bring their names to the disk."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        sync(folder.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    if sys.platform == "win32":
        if path.is_dir():  # which cannot be opened there
            return
        handle = os.open(path, os.O_RDWR | os.O_BINARY)
    else:
        handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Lock:
    """A lock on a file or a folder, held until `close` or the end of the process.

    The lock is on the file itself, as it always was: processes with an older version
    are kept out too. Only Windows, where a locked file cannot be read and a folder
    cannot be opened, has a lock file of its own beside it, `PATH.lock`.

    Args:
        path: The file or folder, which must exist.
        wait: Whether to wait for another holder.

    Raises:
        BlockingIOError: Another process, or another lock of this one, holds it, and
            `wait` is False.
        OSError: It cannot be opened for writing.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self._process = os.getpid()
        self._handle = _open_to_lock(path)
        # Like a file: closed when nobody holds the object any more.
        self._close = weakref.finalize(self, os.close, self._handle)
        try:
            is_mine = lock_descriptor(self._handle, blocking=wait)
        except BaseException:
            self._close()
            raise
        if not is_mine:
            self._close()
            raise BlockingIOError(f"{path} is locked by another process.")

    def close(self) -> None:
        """Release the lock. In a forked process, the parent keeps it."""
        if self._close.alive and self._process == os.getpid():
            # Closing alone would not do: forked processes have the file open too.
            unlock_descriptor(self._handle)
        self._close()


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a `Lock`; arguments and errors are the same."""
    lock = Lock(path, wait=wait)
    try:
        yield
    finally:
        lock.close()


def _open_to_lock(path: Path) -> int:
    if sys.platform == "win32":
        return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    # NFS locks no file that is open for reading alone.
    return os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
