"""Write and check the manifest: what an index is, and the SHA-256 of its files."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdml.messages import cut, shortened, shown

MANIFEST = "manifest.json"
NEW_MANIFEST = "manifest.json.new"
NEXT_MANIFEST = "manifest.next.json"
KEPT = "kept"
"""The member of a manifest that names the data of the index before, which is kept."""
DATA = re.compile(r"data-[0-9a-f]{16}")
"""The name of the folder of the data files."""

_FORMAT = "tfdml-index"
_VERSION = 3
_READ = (2, 3)  # in version 2, string ids were arrays of NumPy's fixed width
# Plain names of files that are read as numbers or text: no folder, no pickle.
_FILE = re.compile(r"[A-Za-z0-9_]+\.(npy|pb|pbtxt)")


class IndexFileError(ValueError):
    """A folder does not contain the requested index, or it is damaged."""


def check_class(
    manifest: Mapping[str, Any], folder: Path, names: Sequence[str]
) -> None:
    """Check that a folder holds an index of a class.

    Args:
        manifest: What `read_manifest` returned.
        folder: The folder.
        names: The name of the class, and those that it had before.

    Raises:
        IndexFileError: It holds another one.
    """
    if manifest["class"] not in names:
        raise IndexFileError(
            f"`folder` must hold a {names[0]}. Received: {cut(folder)}, which holds a "
            f"{cut(manifest['class'])}. Use `load_index`."
        )


def check_notes(notes: object) -> None:
    """Check that a load could restore the notes of a caller.

    Raises:
        TypeError: They are not a dictionary of JSON values.
        ValueError: They hold a number that is not finite, or themselves.
    """
    if not isinstance(notes, dict):
        raise TypeError(
            f"`notes` must be a dictionary of JSON values. Received: {shown(notes)}."
        )
    try:
        _encoded(notes)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"`notes` must hold JSON values. Received: {shortened(error)}."
        ) from error
    except RecursionError:
        raise ValueError("`notes` must not be nested so deeply.") from None


def write_manifest(path: Path, description: dict[str, Any]) -> None:
    """Write a manifest.

    Args:
        path: The file.
        description: What the index is, in JSON types, with the name of the folder of
            its data as `data`, and what `measure` returns of each file as `files`.

    Raises:
        TypeError: It holds something other than JSON values.
        ValueError: It holds a number that is not finite.
    """
    manifest = {"format": _FORMAT, "format_version": _VERSION, **description}
    # As a load will read it: numeric keys of `notes` become strings.
    manifest = json.loads(_encoded(manifest))
    manifest["sha256"] = _digest(manifest)
    path.write_bytes(_encoded(manifest, indent=2))


def read_manifest(folder: Path, name: str = MANIFEST) -> dict[str, Any]:
    """Read and check the manifest in a folder.

    Args:
        folder: The folder.
        name: The file, where it is not that of the index in use.

    Raises:
        IndexFileError: It is missing, damaged or of another version.
    """
    path = folder / name
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise IndexFileError(
            f"`folder` holds no index: {cut(path)} is missing."
        ) from None
    except (ValueError, RecursionError) as error:
        raise IndexFileError(f"{cut(path)} is damaged: it is not JSON.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise IndexFileError(
            f"`folder` holds no index: {cut(path)} describes something else."
        )
    version = manifest.get("format_version")
    if version not in _READ:
        raise IndexFileError(
            f"{cut(path)} has the format version {shown(version)}; this tfdml reads "
            f"versions {_READ[0]} to {_READ[-1]}. Build the index again, or use the "
            "tfdml that wrote it."
        )
    try:
        is_whole = manifest.pop("sha256", None) == _digest(manifest)
    except ValueError:  # NaN, which is not JSON
        is_whole = False
    if not is_whole:
        raise IndexFileError(
            f"{cut(path)} is damaged: it does not match its own SHA-256."
        )
    data, files = manifest.get("data"), manifest.get("files")
    if not isinstance(data, str) or not isinstance(files, dict):
        raise IndexFileError(f"{cut(path)} is damaged: it names no files.")
    if not DATA.fullmatch(data) or not all(map(_FILE.fullmatch, files)):
        raise IndexFileError(f"{cut(path)} names files that an index does not have.")
    return manifest


def is_manifest(path: Path) -> bool:
    """Return whether a file looks like a manifest, of any version."""
    try:
        manifest = json.loads(path.read_bytes())
        return manifest["format"] == _FORMAT and isinstance(manifest["data"], str)
    except (ValueError, KeyError, TypeError, RecursionError, IsADirectoryError):
        return False


def check_file(path: Path, measured: dict[str, Any]) -> None:
    """Compare a file with what `measure` returned for it.

    Raises:
        IndexFileError: It is different or missing.
    """
    try:
        found = measure(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise IndexFileError(f"The index is damaged: {cut(path)} is missing.") from None
    for rule in ("bytes", "sha256"):
        if found[rule] != measured.get(rule):
            raise IndexFileError(
                f"The index is damaged: {cut(path)} must have {rule} "
                f"{shown(measured.get(rule))}. Received: {shown(found[rule])}. Copy or "
                "build it again."
            )


def measure(path: Path) -> dict[str, Any]:
    """Return the size and the SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(_encoded(manifest, sort_keys=True)).hexdigest()


def _encoded(manifest: dict[str, Any], **options: Any) -> bytes:
    # Escapes would join two lone surrogates into one character.
    text = json.dumps(manifest, ensure_ascii=False, allow_nan=False, **options)
    return text.encode("utf-8", "surrogatepass")
