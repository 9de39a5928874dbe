"""The folder of a saved index: replaced as a whole, and checked before it is read.

The data files of one save lie in a subfolder of their own. `manifest.json` names
that subfolder and the size and SHA-256 of each file in it. Renaming a new manifest
over the old one is the only step that changes what the folder holds, so a save that
is killed anywhere leaves the index of before.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["IndexFileError", "check_destination", "read_version", "write_version"]

_FORMAT = "tfdml-index"
_VERSION = 1
_MANIFEST = "manifest.json"
_NEW_MANIFEST = "manifest.json.new"
_DATA = re.compile(r"data-[0-9a-f]{16}")
# Plain names of files that are read as numbers or text: no folder, no pickle.
_FILE = re.compile(r"[A-Za-z0-9_]+\.(npy|pb|pbtxt)")

T = TypeVar("T")


class IndexFileError(ValueError):
    """A folder does not hold the index that was asked for, or not an intact one."""


def check_destination(folder: str | os.PathLike[str]) -> None:
    """Make sure that `write_version` may write to a folder.

    Args:
        folder: Made if it is missing.

    Raises:
        IndexFileError: The folder holds something else than an index.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise IndexFileError(f"`folder` must be a folder. Received: {folder}.")
    if folder.exists():
        _refuse_foreign(folder)


def write_version(
    folder: str | os.PathLike[str],
    description: dict[str, Any],
    write: Callable[[Path], None],
) -> None:
    """Make a folder hold an index, new or in the place of the one that it holds.

    Processes that save to the same folder wait for each other.

    Args:
        folder: Made if it is missing. If not, it must be empty or hold an index.
        description: What the index is, in JSON types; `read_version` returns it.
        write: Writes the data files into the empty folder that it is given.

    Raises:
        IndexFileError: The folder holds something else.
        OSError: The files cannot be written; the index of before is unharmed.
    """
    check_destination(folder)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _refuse_foreign(folder)
        data = folder / f"data-{secrets.token_hex(8)}"
        try:
            data.mkdir()
            write(data)
            manifest = {
                "format": _FORMAT,
                "format_version": _VERSION,
                **description,
                "data": data.name,
                "files": {path.name: _measure(path) for path in sorted(data.iterdir())},
            }
            manifest["sha256"] = _digest(manifest)
            new = folder / _NEW_MANIFEST
            new.write_text(json.dumps(manifest, indent=2), encoding="utf-8")
            for path in (*data.iterdir(), data, new):
                _sync(path)
            new.replace(folder / _MANIFEST)
            _sync(folder)
            _sync(folder.parent)
        finally:
            _remove_unused(folder)


def read_version(
    folder: str | os.PathLike[str], read: Callable[[dict[str, Any], Path], T]
) -> T:
    """Check the index in a folder and read it.

    Args:
        folder: A folder that `write_version` has written, here or elsewhere.
        read: Makes the index of the manifest and the folder of the data files.

    Returns:
        What `read` returns.

    Raises:
        IndexFileError: No index, one of another format version, or one with a
            missing or altered file.
    """
    folder = Path(folder)
    while True:
        manifest = _read_manifest(folder)
        try:
            data = folder / manifest["data"]
            for name, measure in manifest["files"].items():
                _check_file(data / name, measure)
            return read(manifest, data)
        except Exception:
            # Another process may have replaced the index meanwhile.
            if _read_manifest(folder) == manifest:
                raise


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise IndexFileError(f"`folder` holds no index: {path} is missing.") from None
    except ValueError as error:
        raise IndexFileError(f"{path} is damaged: it is not JSON.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise IndexFileError(f"`folder` holds no index: {path} is of something else.")
    version = manifest.get("format_version")
    if version != _VERSION:
        raise IndexFileError(
            f"{path} has the format version {version!r}; this tfdml reads version "
            f"{_VERSION}. Build the index again, or use the tfdml that wrote it."
        )
    if manifest.pop("sha256", None) != _digest(manifest):
        raise IndexFileError(f"{path} is damaged: it does not match its own SHA-256.")
    names = manifest["files"]
    if not _DATA.fullmatch(manifest["data"]) or not all(map(_FILE.fullmatch, names)):
        raise IndexFileError(f"{path} names files that an index does not have.")
    return manifest


def _check_file(path: Path, measure: dict[str, Any]) -> None:
    try:
        found = _measure(path)
    except FileNotFoundError:
        raise IndexFileError(f"The index is damaged: {path} is missing.") from None
    for rule in ("bytes", "sha256"):
        if found[rule] != measure[rule]:
            raise IndexFileError(
                f"The index is damaged: {path} must have {rule} {measure[rule]}. "
                f"Received: {found[rule]}. Copy or build it again."
            )


def _measure(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _digest(manifest: dict[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_foreign(folder: Path) -> None:
    if (folder / _MANIFEST).exists():
        try:
            manifest = json.loads((folder / _MANIFEST).read_bytes())
            known = manifest["format"] == _FORMAT and isinstance(manifest["data"], str)
        except (ValueError, KeyError, TypeError):
            known = False
    else:  # nothing, or the leavings of a first save that was killed
        # The manifest may have appeared meanwhile; whoever saves looks again.
        known = all(
            path.name in (_MANIFEST, _NEW_MANIFEST) or _DATA.fullmatch(path.name)
            for path in folder.iterdir()
        )
    if not known:
        raise IndexFileError(
            f"`folder` must be empty or hold an index. Received: {folder}, which "
            "holds other files. Save to another folder, or remove it."
        )


def _remove_unused(folder: Path) -> None:
    manifest = folder / _MANIFEST
    used = json.loads(manifest.read_bytes())["data"] if manifest.exists() else None
    for path in folder.iterdir():
        if _DATA.fullmatch(path.name) and path.name != used:
            shutil.rmtree(path, ignore_errors=True)
    (folder / _NEW_MANIFEST).unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other savers out; the lock ends with the process that holds it."""
    if sys.platform == "win32":  # no flock: savers there must take turns
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk, before a rename counts on it."""
    if sys.platform == "win32":  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
