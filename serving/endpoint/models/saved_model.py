"""Find the versions of exported models on disk, and identify models.

The folder layout is that of TF Serving: `MODEL_BASE_PATH/VERSION/saved_model.pb`, the
version being a whole number.
"""

import hashlib
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tfdml.command_parser import command
from tfdml.files import sha256_of
from tfdml.messages import shown

_GRAPH = "saved_model.pb"
_MOST_DIGITS = 19
_FIRST_TOO_LARGE = 2**63  # versions are signed integers of 64 bits


@dataclass(frozen=True)
class ModelVersion:
    """One version of an exported model: where it lies and what it is called."""

    name: str
    version: int
    folder: Path


def find_model_version(model: str | PathLike[str]) -> ModelVersion:
    """Find the version of an exported model to use: the highest number.

    Args:
        model: Base path with one numbered folder a version, as TF Serving reads it,
            or one numbered folder itself, to use just that version.

    Returns:
        The version. Its name is the name of the base path.

    Raises:
        FileNotFoundError: There is no exported model.
    """
    base = Path(model).resolve()
    if has_graph(base) and is_version(base.name):
        return ModelVersion(base.parent.name, int(base.name), base)
    folders = find_version_folders(base) if base.is_dir() else {}
    versions = {
        version: folder for version, folder in folders.items() if has_graph(folder)
    }
    if not versions:
        raise FileNotFoundError(
            "`model` must hold an exported model in a numbered folder, such as "
            f"models/emoji with models/emoji/1/{_GRAPH} inside; "
            f"`{command('serving', 'export')}` writes one. "
            f"Received: model={shown(str(model))}."
        )
    latest = max(versions)
    return ModelVersion(base.name, latest, versions[latest])


def find_version_folders(base_path: str | PathLike[str]) -> dict[int, Path]:
    """Find all versions of a model, the incomplete ones too.

    Args:
        base_path: Folder with one numbered folder a version.

    Returns:
        The folder of each version. Of two names for one number, such as "7" and "07",
        the one that sorts last.

    Raises:
        OSError: The base path is not a folder that can be read.
    """
    with os.scandir(base_path) as entries:
        names = sorted(
            entry.name for entry in entries if is_version(entry.name) and entry.is_dir()
        )
    return {int(name): Path(base_path) / name for name in names}


def has_graph(folder: str | PathLike[str]) -> bool:
    """Return whether the folder of a version holds `saved_model.pb`."""
    return os.path.isfile(os.path.join(folder, _GRAPH))


def folder_stamp(folder: str | PathLike[str]) -> tuple[tuple[str, int, int, int], ...]:
    """Describe the files of a folder, to see whether any has been changed.

    Args:
        folder: Folder of one version.

    Returns:
        Path, size and times of change of each file, sorted. Files that vanish
        meanwhile are left out.
    """
    stamp = []
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            try:
                found = os.stat(file)
            except OSError:
                continue
            # The second time shows a change of content that keeps the first one.
            stamp.append((file, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return tuple(sorted(stamp))


def is_version(name: str) -> bool:
    """Return whether a folder of this name is a version: digits, below 2^63."""
    if not (name.isascii() and name.isdigit()):
        return False
    return len(name) <= _MOST_DIGITS and int(name) < _FIRST_TOO_LARGE


def model_fingerprint(folder: str | PathLike[str]) -> str:
    """Compute a digest that identifies a model: SHA-256 of graph and weights.

    A copy of the model in another place has the same fingerprint; anything that
    changes its embeddings changes it.

    Args:
        folder: Folder of one version, the one that holds `saved_model.pb`.

    Returns:
        64 hexadecimal digits.

    Raises:
        FileNotFoundError: The folder holds no SavedModel.
    """
    root = Path(folder)
    graph = root / _GRAPH
    if not graph.is_file():
        raise FileNotFoundError(
            f"`folder` must hold a SavedModel ({_GRAPH}). "
            f"Received: folder={shown(str(folder))}."
        )
    variables = sorted(path for path in root.glob("variables/**/*") if path.is_file())
    digest = hashlib.sha256()
    for path in [graph, *variables]:
        name = path.relative_to(root).as_posix()
        digest.update(f"{name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
