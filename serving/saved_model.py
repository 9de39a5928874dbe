"""Exported models on disk: finding the version to use, telling models apart, running.

The folder layout is that of TF Serving: `MODEL_BASE_PATH/VERSION/saved_model.pb`, the
version being a whole number.
"""

import hashlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tfdml.views import View, view_of_signatures

__all__ = [
    "ModelVersion",
    "SavedEmbedder",
    "find_model_version",
    "model_fingerprint",
]

_GRAPH = "saved_model.pb"
_SIGNATURE = "tensors"
_INPUT = "images"
_OUTPUT = "embedding"


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


class SavedEmbedder:
    """An exported model, loaded into this process: pixels in, unit embeddings out.

    Args:
        folder: Folder of one version, with a signature `tensors` that takes `images`
            (uint8 `[batch, size, size, 3]`) and returns `embedding`
            (float32 `[batch, dimension]`).

    Raises:
        ValueError: The model cannot be loaded or has no such signature.

    Attributes:
        image_size: Side of the model's pictures.
        view: What of a picture they show.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        import tensorflow as tf

        try:
            # Kept, because a signature alone does not hold its variables alive.
            self._model = tf.saved_model.load(str(folder))
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            raise ValueError(
                f"The exported model in {str(folder)!r} cannot be loaded "
                f"({type(error).__name__}: {error})."
            ) from error
        signature = self._model.signatures.get(_SIGNATURE)
        if signature is None:
            raise ValueError(
                f"The exported model in {str(folder)!r} has no signature "
                f"`{_SIGNATURE}`, only {sorted(self._model.signatures)}. Export it "
                "again with `python -m serving export`."
            )
        spec = signature.structured_input_signature[1].get(_INPUT)
        shape = None if spec is None else spec.shape.as_list()
        if (
            shape is None
            or len(shape) != 4
            or spec.dtype != tf.uint8
            or not shape[1]
            or shape[1] != shape[2]
            or _OUTPUT not in signature.structured_outputs
        ):
            raise ValueError(
                f"Signature `{_SIGNATURE}` must take `{_INPUT}` (uint8 [batch, size, "
                f"size, 3]) and return `{_OUTPUT}`. Received in {str(folder)!r}: "
                f"{signature.structured_input_signature[1]} and "
                f"{signature.structured_outputs}."
            )
        self.image_size: int = shape[1]
        self.view: View = view_of_signatures(self._model.signatures, shape[1])
        self._signature = signature
        self._constant = tf.constant

    def embed(self, images: np.ndarray) -> np.ndarray:
        """Embed pictures that are in the view of the model.

        Args:
            images: uint8 `[batch, size, size, 3]`, each from `view.central`.

        Returns:
            float32 `[batch, dimension]`, rows of length 1.
        """
        outputs = self._signature(**{_INPUT: self._constant(images)})
        return outputs[_OUTPUT].numpy().astype(np.float32, copy=False)
