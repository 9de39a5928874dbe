"""Exported models on disk: finding the version to use, telling models apart.

The folder layout is that of TF Serving: `MODEL_BASE_PATH/VERSION/saved_model.pb`, the
version being a whole number.
"""

import hashlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

__all__ = [
    "ModelVersion",
    "find_model_version",
    "model_fingerprint",
]

_GRAPH = "saved_model.pb"


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
    if (base / _GRAPH).is_file() and _is_version(base.name):
        return ModelVersion(base.parent.name, int(base.name), base)
    versions = {
        int(folder.parent.name): folder.parent
        for folder in base.glob(f"*/{_GRAPH}")
        if _is_version(folder.parent.name)
    }
    if not versions:
        raise FileNotFoundError(
            "`model` must hold an exported model in a numbered folder, such as "
            f"models/emoji with models/emoji/1/{_GRAPH} inside; "
            f"`python -m serving export` writes one. Received: model={str(model)!r}."
        )
    latest = max(versions)
    return ModelVersion(base.name, latest, versions[latest])


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit()


def model_fingerprint(folder: str | PathLike[str]) -> str:
    """Compute a digest that tells two models apart: SHA-256 of graph and weights.

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
            f"Received: folder={str(folder)!r}."
        )
    variables = sorted(path for path in root.glob("variables/**/*") if path.is_file())
    digest = hashlib.sha256()
    for path in [graph, *variables]:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()
