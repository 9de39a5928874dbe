"""Mark tensors with the layer that made them, as Keras marks them with masks.

A loss on the similarities with proxies cannot tell them from an embedding by shape or
values. A mark tells it on every backend, also in compiled code: there it is on the
placeholder, while the function is traced.
"""

import keras
import numpy as np
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.common.tensor_attributes import get_tensor_attr, set_tensor_attr

from tfdml._core.tensors import Tensor

PROXIES = "similarities with proxies, as `tfdml.layers.Proxies` makes them"
BOUNDARIES = "embeddings with boundaries, as `tfdml.layers.ClassBoundaries` makes them"
SCALED = "embeddings with scale and bias, as `tfdml.layers.ScaleAndBias` makes them"
MOMENTS = "an embedding and its moments, as `tfdml.layers.HighOrderMoments` makes them"
REFERENCE = (
    "embeddings with those of another model, as `tfdml.layers.ReferenceEmbeddings` "
    "makes them"
)
BOTH_PROXIES = (
    "similarities with new and old proxies, as `tfdml.layers.CompatibleProxies` makes "
    "them"
)


def mark(tensor: Tensor, content: str) -> Tensor:
    """Mark a tensor with what it holds, such as `PROXIES`, and return it."""
    set_tensor_attr(tensor, "_tfdml_content", content)
    return tensor


def mark_of(tensor: Tensor) -> str | None:
    """Return what a tensor was marked with, if anything."""
    content: str | None = get_tensor_attr(tensor, "_tfdml_content")
    return content


def require_mark(loss: str, tensor: Tensor, content: str, remedy: str) -> None:
    """Refuse a tensor that no layer marked as what a loss needs.

    Arrays and lists are taken at their word: they are written by hand, or come from
    `predict`, which gives no tensors.

    Raises:
        ValueError: The mark is missing, or another one.
    """
    if mark_of(tensor) == content or not _comes_from_a_model(tensor):
        return
    shape = tuple(getattr(tensor, "shape", ()))
    raise ValueError(
        f"The output (`y_pred`) for {loss} must be {content}. {remedy} Received: "
        f"{mark_of(tensor) or 'a tensor that no such layer made'}, shape={shape}."
    )


def refuse_marks(tensor: Tensor) -> None:
    """Refuse what is no embedding where embeddings are compared.

    Raises:
        ValueError: The tensor is marked.
    """
    content = mark_of(tensor)
    if content is not None:
        raise ValueError(
            "The output (`y_pred`) must be embeddings, which are compared with each "
            f"other. Received: {content}. Give the model an output of embeddings "
            "beside it; to measure held-out images use "
            "`tfdml.metrics.RetrievalEvaluation`, which takes them by itself."
        )


def is_building() -> bool:
    """Return whether Keras runs code on placeholders of its own, to build a model."""
    return bool(in_symbolic_scope())


def _comes_from_a_model(tensor: Tensor) -> bool:
    # Keras builds a loss on placeholders of its own, to which no mark comes.
    if is_building() or keras.backend.is_keras_tensor(tensor):
        return False
    return not isinstance(tensor, np.ndarray) and bool(keras.ops.is_tensor(tensor))
