"""Run an exported embedder in this process."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from tfdml.command_parser import command
from tfdml.images import View
from tfdml.messages import shortened, shown
from tfdml.model_version import (
    DESCRIPTION_FILE,
    TEXT_INPUT,
    TEXT_SIGNATURE,
    read_description,
)
from tfdml.text_operators import register_text_operators

_SIGNATURE = "tensors"
_INPUT = "images"
_OUTPUT = "embedding"


class SavedEmbedder:
    """An exported model, loaded into this process: pixels in, embeddings out.

    Args:
        folder: Folder of one version, with a signature `tensors` that takes `images`
            (uint8 `[batch, size, size, 3]`) and returns `embedding`
            (float32 `[batch, dimension]`).

    Raises:
        ValueError: The model cannot be loaded or has no such signature.

    Attributes:
        image_size: Side of the model's images.
        view: What of an image they show.
        metric: How its embeddings are compared: `"cosine"`, or `"squared_euclidean"` if
            they have any length.
        dimension: That of its embeddings; None if the signature does not say.
        has_text: Whether it embeds texts, too.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        import tensorflow as tf

        try:
            register_text_operators(folder)
            # Kept, because a signature alone does not hold its variables alive.
            self._model = tf.saved_model.load(str(folder))
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            raise ValueError(
                f"The exported model in {shown(str(folder))} cannot be loaded "
                f"({type(error).__name__}: {shortened(error)})."
            ) from error
        signature = self._model.signatures.get(_SIGNATURE)
        if signature is None:
            raise ValueError(
                f"The exported model in {shown(str(folder))} has no signature "
                f"`{_SIGNATURE}`, only {shown(sorted(self._model.signatures))}. Export "
                f"it again with `{command('serving', 'export')}`."
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
                f"size, 3]) and return `{_OUTPUT}`. Received in {shown(str(folder))}: "
                f"{shown(signature.structured_input_signature[1])} and "
                f"{shown(signature.structured_outputs)}."
            )
        self.image_size: int = shape[1]
        self.view: View = View.of_signatures(self._model.signatures, shape[1])
        self.metric = _metric_of(Path(folder))
        self.dimension: int | None = signature.structured_outputs[_OUTPUT].shape[-1]
        self._signature = signature
        self._text_signature = self._model.signatures.get(TEXT_SIGNATURE)
        self.has_text: bool = self._text_signature is not None
        self._constant = tf.constant

    def embed(self, images: np.ndarray) -> np.ndarray:
        """Embed images that are in the view of the model.

        Args:
            images: uint8 `[batch, size, size, 3]`, each from `view.central`.

        Returns:
            float32 `[batch, dimension]`, as the model returns them: rows of length 1
            from a model that `export_embedder` wrote, if they are compared by cosine.
        """
        outputs = self._signature(**{_INPUT: self._constant(images)})
        return outputs[_OUTPUT].numpy().astype(np.float32, copy=False)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts, for searches among images.

        Args:
            texts: One text per row.

        Returns:
            float32 `[batch, dimension]`, comparable with what `embed` returns.

        Raises:
            ValueError: The model has no text tower.
        """
        if self._text_signature is None:
            raise ValueError(
                "`texts` must be embedded by a model with a text tower; this one was "
                f"exported without (docs/export.md). Received: {shown(list(texts))}."
            )
        encoded = np.array([text.encode() for text in texts], object)
        outputs = self._text_signature(**{TEXT_INPUT: self._constant(encoded)})
        return outputs[_OUTPUT].numpy().astype(np.float32, copy=False)


def _metric_of(folder: Path) -> Literal["cosine", "squared_euclidean"]:
    """Return how embeddings are compared; by cosine where a model does not say."""
    embedding = (read_description(folder) or {}).get("embedding", {})
    metric = embedding.get("metric", "cosine")
    if metric not in ("cosine", "squared_euclidean"):
        raise ValueError(
            f"The metric in {DESCRIPTION_FILE} must be cosine or squared_euclidean. "
            f"Received in {shown(str(folder))}: {shown(metric)}."
        )
    return metric
