"""Check the labels and embeddings of a batch; compare its labels with a gallery."""

import keras
import numpy as np
from keras import ops
from keras.src.backend import get_keras_mask  # not part of Keras' public API

from tfdml._tensors import Tensor, same_labels


def refuse_mask(y_pred: Tensor) -> None:
    """Refuse embeddings that carry a Keras mask.

    Raises:
        ValueError: The embeddings carry a mask.
    """
    if get_keras_mask(y_pred) is not None:
        raise ValueError(
            "The embeddings (`y_pred`) must not carry a Keras mask: masked rows would "
            "still be compared with others. Leave them out of the batch; if it is not "
            "a mask of rows, remove it in the model, by a layer that does not pass it "
            "on. Received: a mask."
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
            "A batch must have at least 2 rows, or there is no pair to compare. "
            "Received: 1 row."
        )
    return labels, embeddings


def checked_labels(labels: Tensor, rows: int | None) -> Tensor:
    """Check class ids and return them as a tensor `[B]` of unchanged type.

    Args:
        labels: Labels `[B]` or `[B, 1]`.
        rows: Number of rows of the model's output, None if unknown.

    Raises:
        ValueError: As the messages say.
    """
    labels = ops.convert_to_tensor(labels)
    if len(labels.shape) == 2 and labels.shape[1] == 1:
        labels = ops.squeeze(labels, axis=1)
    if len(labels.shape) != 1:
        raise ValueError(
            "The labels (`y_true`) must be one class id per row, of shape [batch] or "
            f"[batch, 1], not one-hot. Received: shape={tuple(labels.shape)}."
        )
    if None not in (labels.shape[0], rows) and labels.shape[0] != rows:
        raise ValueError(
            "The labels (`y_true`) and the embeddings (`y_pred`) must have equally "
            f"many rows. Received: {labels.shape[0]} labels and {rows} embeddings."
        )
    if not is_traced(labels):
        values = ops.convert_to_numpy(labels)
        if np.issubdtype(values.dtype, np.floating):
            fractions = values[values != np.floor(values)]
            if len(fractions):
                raise ValueError(
                    "The labels (`y_true`) must be whole numbers, the ids of classes. "
                    f"Received: {fractions[0]}. For continuous labels use a "
                    "ContinuousLoss."
                )
    return labels


def gallery_masks(
    labels: Tensor, gallery_labels: Tensor, position: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mark which gallery items are positives and which are negatives of each anchor.

    Args:
        labels: Labels of the anchors, `[A]`.
        gallery_labels: Labels of the gallery, `[G]`.
        position: Index of each anchor in the gallery, int `[A]`, where it is neither a
            positive nor a negative. None if the anchors are not in the gallery.

    Returns:
        Two boolean tensors `[A, G]`: positives and negatives.

    Raises:
        ValueError: The types of the labels differ and have no common integer type.
    """
    types = {keras.backend.standardize_dtype(x.dtype) for x in (labels, gallery_labels)}
    if len(types) > 1 and "int" not in keras.backend.result_type(*types):
        raise ValueError(
            "The labels of queries and gallery must have a common integer type: "
            "otherwise large class ids become equal. "
            f"Received: {', '.join(sorted(types))}."
        )
    same = same_labels(labels, gallery_labels)
    if position is None:
        return same, ops.logical_not(same)
    positions = ops.arange(ops.shape(gallery_labels)[0], dtype=position.dtype)
    itself = same_labels(position, positions)
    return ops.logical_and(same, ops.logical_not(itself)), ops.logical_not(same)


def is_traced(tensor: Tensor) -> bool:
    """Return whether the values of a tensor are unknown, as in a compiled function."""
    if keras.backend.is_keras_tensor(tensor):
        return True
    if keras.backend.backend() == "tensorflow":
        return not hasattr(tensor, "numpy")
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(tensor, jax.core.Tracer)
    return False


def _may_be_in_fit(tensor: Tensor) -> bool:
    """Return whether this may be the last batch of `fit`; torch runs it eagerly."""
    return is_traced(tensor) or keras.backend.backend() == "torch"
