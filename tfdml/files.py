"""Write files and folders as a whole, on the disk, and by one process at a time.

A file is written beside its place and renamed to it when it is on the disk, so a kill,
a full disk or a power cut leaves the old file or the new one, never a mixture. A lock
ends with the process that holds it, however it ends.
"""

import errno
import hashlib
import os
import secrets
import shutil
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor, unlock_descriptor

from tfdml.messages import LONGEST, cut

DISK_IS_FULL = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT") if hasattr(errno, name)
)
"""The `errno` of an error that only more room on the disk ends."""

_UNFINISHED = ".unfinished"
_EARLIER = ".part"  # what earlier versions called it


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name a path in the error of a disk that is full or broken, which names none.

    Args:
        path: What is being written.

    Raises:
        OSError: As in the block, with `path` as the `filename`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_IS_FULL | {errno.EIO, errno.EFBIG, errno.EROFS}:
            error.filename = error.filename or os.fspath(path)
        elif error.errno is None and "requested and" in str(error):
            # NumPy leaves the number out, and tells how many values it has written.
            raise OSError(
                errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path)
            ) from error
        raise


@contextmanager
def short_names() -> Iterator[None]:
    """Shorten the path in an error that would be too long to read.

    A public function that takes a path has this as its decorator.

    Raises:
        OSError: As in the block.
    """
    try:
        yield
    except OSError as error:
        if len(str(error)) > LONGEST:
            for name in ("filename", "filename2"):
                if (path := getattr(error, name)) is not None:
                    setattr(error, name, cut(path))
        raise


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
        with naming(path):
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
        with naming(path):
            yield new
            _sync_all(new)
        if path.exists():
            raise FileExistsError(f"`path` must not exist. Received: {cut(path)}.")
        new.rename(path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    sync(path.parent)


def replace_folder(new: Path, path: Path, aside: Path) -> None:
    """Rename a folder to `path` when all of it is on the disk.

    A folder cannot be replaced in one step: a kill in between leaves the old one as
    `aside` and the new one as `new`.

    Args:
        new: The folder.
        path: The place for it, on the same file system.
        aside: Where a folder in that place is kept until it is removed.
    """
    _sync_all(new)
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        if not path.exists() and aside.exists():
            aside.rename(path)
        raise
    sync(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    for name, _, files in os.walk(folder):
        for file in files:
            path = Path(name, file)
            if not path.is_symlink():  # its target may be elsewhere, or nowhere
                sync(path)
        sync(Path(name))


def remove_unfinished(folder: Path, name: str = "") -> None:
    """Remove the files that killed writers have left in a folder.

    Args:
        folder: The folder; nobody may be writing the files in it.
        name: Of which file, any if empty.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in folder.iterdir():
            is_of = not name or path.name.startswith(f"{name}.")
            is_unfinished = path.suffix in (_UNFINISHED, _EARLIER)
            if is_of and is_unfinished and path.is_file():
                path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder with those above it, and bring their names to the disk."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        sync(folder.parent)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's content, 64 hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    if sys.platform == "win32":
        if path.is_dir():  # which cannot be opened there
            return
        handle = os.open(path, os.O_RDWR | os.O_BINARY)
    else:
        handle = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
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
        self._handle = _locked_handle(path, wait)
        # Like a file: closed when nobody holds the object any more.
        self._close = weakref.finalize(self, os.close, self._handle)

    def close(self) -> None:
        """Release the lock. In a forked process, the parent keeps it."""
        try:
            if self._close.alive and self._process == os.getpid():
                # Closing alone would not do: forked processes have the file open too.
                unlock_descriptor(self._handle)
        finally:
            self._close()


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a `Lock`; arguments and errors are the same."""
    lock = Lock(path, wait=wait)
    try:
        yield
    finally:
        lock.close()


def _locked_handle(path: Path, wait: bool) -> int:
    target, flags = path, os.O_RDWR  # NFS locks no file that is only open for reading
    if sys.platform == "win32":
        target, flags = path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT
    elif path.is_dir():
        flags = os.O_RDONLY
    while True:
        handle = os.open(target, flags)
        try:
            if not lock_descriptor(handle, blocking=wait):
                raise BlockingIOError(f"{cut(path)} is locked by another process.")
            # Whoever held the lock before may have removed or replaced the file.
            if os.path.samestat(os.fstat(handle), target.stat()):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
