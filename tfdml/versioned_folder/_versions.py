"""Replace the folder of a saved index as a whole, and check it before it is read.

The data files of one save lie in a subfolder of their own. `manifest.json` names
that subfolder and the size and SHA-256 of each file in it. Renaming a new manifest
over the old one is the only step that changes what the folder holds, so a save that
is killed at any point leaves the old index. Changes since the save are in a file beside
the subfolder, with its name and `.log`.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tfdml.files import Lock, locked, make_folder, naming, sync
from tfdml.messages import cut, shortened
from tfdml.versioned_folder._manifest import (
    DATA,
    KEPT,
    MANIFEST,
    NEW_MANIFEST,
    NEXT_MANIFEST,
    IndexFileError,
    check_file,
    is_manifest,
    measure,
    read_manifest,
    write_manifest,
)

# With the file that locks it, where there is one.
_LOG = re.compile(rf"({DATA.pattern})\.log(\.lock)?")
_KEPT_MANIFEST = re.compile(rf"({DATA.pattern})\.json")
# Raised by reading files that are whole but were not written by `write_version`.
_UNFIT = (
    ArithmeticError,
    AttributeError,
    EOFError,
    FileNotFoundError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

T = TypeVar("T")


class LockedError(OSError):
    """Another process, or another index in this one, is changing the same folder."""


def lock_log(path: Path) -> Lock:
    """Lock a file of changes.

    Raises:
        LockedError: Somebody else has locked it.
    """
    try:
        return Lock(path)
    except BlockingIOError:
        raise LockedError(
            f"{cut(path.parent)} is being changed by another process, or by another "
            "index of this one. Only one may write at a time; close that one first."
        ) from None


def check_destination(folder: str | os.PathLike[str]) -> None:
    """Check that `write_version` may write to a folder.

    Args:
        folder: May be missing.

    Raises:
        IndexFileError: The folder holds something other than an index.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise IndexFileError(f"`folder` must be a folder. Received: {cut(folder)}.")
    if folder.exists():
        _refuse_foreign(folder)


def check_unlocked(folder: str | os.PathLike[str]) -> None:
    """Check that nobody is changing the index in a folder, if it holds one.

    Raises:
        LockedError: Somebody is.
        OSError: The index cannot be changed, as on a read-only disk.
    """
    with unchanged(Path(folder), None):
        pass


def log_of(data: Path) -> Path:
    """Return the file of the changes to the data in a folder."""
    return data.with_name(f"{data.name}.log")


def saved_data(folder: str | os.PathLike[str]) -> Path:
    """Return the subfolder that holds the data of the index in a folder.

    Raises:
        IndexFileError: The folder holds no index.
    """
    return Path(folder) / str(read_manifest(Path(folder))["data"])


def write_version(
    folder: str | os.PathLike[str],
    description: dict[str, Any],
    write: Callable[[Path], None],
    *,
    own: int | None = None,
) -> Path:
    """Write an index to a folder, in place of the one that it holds, if any.

    Processes that save to the same folder wait for each other.

    Args:
        folder: Created if missing. Otherwise it must be empty or hold an index.
        description: What the index is, in JSON types; `read_version` returns it.
        write: Writes the data files into the empty folder that it is given, and the
            file that `log_of` names beside it, if there is to be one.
        own: The handle of the log that the caller has locked. The log of any other
            index in the folder is locked meanwhile, so that no changes are lost.

    Returns:
        The folder of the data files.

    Raises:
        IndexFileError: The folder holds something else.
        LockedError: Somebody else is changing the index in the folder.
        OSError: The files cannot be written; the old index is unharmed.
    """
    check_destination(folder)
    folder = Path(folder)
    is_new = not folder.exists()
    make_folder(folder)
    try:
        with naming(folder):
            return _write_version(folder, description, write, own)
    except BaseException:
        if is_new:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


def _write_version(
    folder: Path,
    description: dict[str, Any],
    write: Callable[[Path], None],
    own: int | None,
) -> Path:
    with locked(folder, wait=True), unchanged(folder, own):
        _refuse_foreign(folder)
        data = folder / f"data-{secrets.token_hex(8)}"
        try:
            data.mkdir()
            write(data)
            files = {path.name: measure(path) for path in sorted(data.iterdir())}
            new = folder / NEW_MANIFEST
            described = {**description, "data": data.name, "files": files}
            write_manifest(new, described | _kept_of(folder))
            # All of it is on the disk before the rename counts on it.
            for path in (*data.iterdir(), data, new, folder):
                sync(path)
            new.replace(folder / MANIFEST)
            sync(folder)
        finally:
            remove_unused(folder)
    return data


def manifest_of(data: Path) -> Path:
    """Return the file of the manifest of data that are kept, but not used."""
    return data.with_name(f"{data.name}.json")


def _kept_of(folder: Path) -> dict[str, str]:
    """Return what a save must not lose: the index that the folder keeps beside."""
    with suppress(IndexFileError):
        manifest = read_manifest(folder)
        return {KEPT: manifest[KEPT]} if KEPT in manifest else {}
    return {}


def read_version(
    folder: str | os.PathLike[str], read: Callable[[dict[str, Any], Path], T]
) -> T:
    """Check the index in a folder and read it.

    Args:
        folder: A folder that `write_version` has written, here or elsewhere.
        read: Builds the index from the manifest and the folder of the data files.

    Returns:
        What `read` returns.

    Raises:
        IndexFileError: The folder holds no index, one of another format version, or
            one with a missing or altered file.
    """
    folder = Path(folder)
    while True:
        manifest = read_manifest(folder)
        try:
            data = folder / manifest["data"]
            for name, measured in manifest["files"].items():
                check_file(data / name, measured)
            return read(manifest, data)
        except Exception as error:
            # Another process may have replaced the index meanwhile.
            if read_manifest(folder)["data"] != manifest["data"]:
                continue
            if isinstance(error, IndexFileError) or not isinstance(error, _UNFIT):
                raise
            raise IndexFileError(
                f"The index is damaged: the files in {cut(folder)} do not match each "
                f"other ({type(error).__name__}: {shortened(error)}). Build it again."
            ) from error


def _refuse_foreign(folder: Path) -> None:
    if (folder / MANIFEST).exists():
        known = is_manifest(folder / MANIFEST)
    else:  # empty, or the remains of a first save that was killed
        # The manifest may have appeared meanwhile; a save checks again.
        known = all(
            path.name in (MANIFEST, NEW_MANIFEST)
            or DATA.fullmatch(path.name)
            or _LOG.fullmatch(path.name)
            for path in folder.iterdir()
        )
    if not known:
        raise IndexFileError(
            f"`folder` must be empty or hold an index. Received: {cut(folder)}, which "
            "holds other files. Save to another folder, or remove it."
        )


def remove_unused(folder: Path) -> None:
    """Remove the remains of saves; those that cannot be removed do no harm."""
    with suppress(OSError):
        used, kept = set(), None
        for name in (MANIFEST, NEXT_MANIFEST):
            if (folder / name).exists():
                found = json.loads((folder / name).read_bytes())
                kept = found.get(KEPT) if name == MANIFEST else kept
                used |= {found["data"], found.get(KEPT)}
        for path in folder.iterdir():
            if DATA.fullmatch(path.name) and path.name not in used:
                shutil.rmtree(path, ignore_errors=True)
            log = _LOG.fullmatch(path.name)
            own = _KEPT_MANIFEST.fullmatch(path.name)
            if (log and log[1] not in used) or (own and own[1] != kept):
                path.unlink(missing_ok=True)
        (folder / NEW_MANIFEST).unlink(missing_ok=True)


@contextmanager
def unchanged(folder: Path, own: int | None) -> Iterator[None]:
    """Keep others from changing the index that a folder holds."""
    lock = None
    # A damaged index, or one of another version, takes no changes.
    with suppress(IndexFileError, FileNotFoundError):
        log = log_of(saved_data(folder))
        # The folder may have been moved, or be named in another way.
        if own is None or not os.path.samestat(os.fstat(own), log.stat()):
            lock = lock_log(log)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()
