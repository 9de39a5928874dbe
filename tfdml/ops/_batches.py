"""Check the labels and embeddings of a batch."""

import keras
import numpy as np
from keras import ops
from keras.src.backend import get_keras_mask  # Keras offers it in no other place.

from tfdml.ops._pairs import Tensor


def refuse_mask(y_pred: Tensor) -> None:
    """Refuse embeddings that carry a Keras mask.

    Raises:
        ValueError: They do.
    """
    if get_keras_mask(y_pred) is not None:
        raise ValueError(
            "The embeddings (`y_pred`) must carry no Keras mask: hidden rows would "
            "still be compared with others. Leave them out of the batch; if it is "
            "no mask of rows, end it in the model, with a layer that does not pass "
            "it on. Received: a mask."
        )


def checked_batch(
    labels: Tensor, embeddings: Tensor, dtype: str
) -> tuple[Tensor, Tensor]:
    """Check a batch and return labels `[B]` and embeddings `[B, dimension]`.

    Args:
        labels: Labels `[B]` or `[B, 1]`; their type is kept.
        embeddings: Embeddings, converted to `dtype`.
        dtype: Float type of the embeddings that are returned.

    Raises:
        ValueError: As the messages say.
    """
    embeddings = ops.convert_to_tensor(embeddings, dtype=dtype)
    if len(embeddings.shape) != 2:
        raise ValueError(
            "The embeddings (`y_pred`) must have the shape [batch, dimension]. "
            f"Received: shape={tuple(embeddings.shape)}."
        )
    labels = checked_labels(labels, embeddings.shape[0])
    if labels.shape[0] == 1 and not _may_be_in_fit(labels):
        raise ValueError(
            "A batch must hold at least 2 rows: there is no pair to compare. "
            "Received: 1 row."
        )
    return labels, embeddings


def checked_labels(labels: Tensor, rows: int | None) -> Tensor:
    """Check class ids and return them as a tensor `[B]` of the type they come in.

    Args:
        labels: Labels `[B]` or `[B, 1]`.
        rows: How many rows the model's output has, None where that is unknown.

    Raises:
        ValueError: As the messages say.
    """
    labels = ops.convert_to_tensor(labels)
    if len(labels.shape) == 2 and labels.shape[1] == 1:
        labels = ops.squeeze(labels, axis=1)
    if len(labels.shape) != 1:
        raise ValueError(
            "The labels (`y_true`) must be one class id a row, of shape [batch] or "
            f"[batch, 1]; one-hot rows are not. Received: shape={tuple(labels.shape)}."
        )
    if None not in (labels.shape[0], rows) and labels.shape[0] != rows:
        raise ValueError(
            "The labels (`y_true`) and the embeddings (`y_pred`) must have as many "
            f"rows. Received: {labels.shape[0]} labels and {rows} embeddings."
        )
    if not is_traced(labels):
        values = ops.convert_to_numpy(labels)
        if np.issubdtype(values.dtype, np.floating):
            fractions = values[values != np.floor(values)]
            if len(fractions):
                raise ValueError(
                    "The labels (`y_true`) must be whole numbers, the ids of classes. "
                    f"Received: {fractions[0]}. For continuous labels use a loss made "
                    "for them."
                )
    return labels


def is_traced(tensor: Tensor) -> bool:
    """Whether the values of a tensor are unknown, inside a compiled function."""
    if keras.backend.is_keras_tensor(tensor):
        return True
    if keras.backend.backend() == "tensorflow":
        return not hasattr(tensor, "numpy")
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(tensor, jax.core.Tracer)
    return False


def _may_be_in_fit(tensor: Tensor) -> bool:
    """Whether this may be the last batch of `fit`; torch runs it eagerly."""
    return is_traced(tensor) or keras.backend.backend() == "torch"
