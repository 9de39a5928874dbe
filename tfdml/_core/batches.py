"""Check the labels and embeddings of a batch; compare its labels with a gallery."""

from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.backend.common.masking import get_keras_mask
from numpy.typing import NDArray

from tfdml._core.arrays import as_array
from tfdml._core.labels import as_labels
from tfdml._core.tensors import Tensor, same_labels

_NUMBERS = (
    "The labels (`y_true`) must be whole numbers, which every backend has: number "
    "strings by `tfdml.batch_designs.encode_labels`."
)

LARGEST_COMPONENT = 1e12
"""Of an embedding that is not normalized, in float32: its square times a batch fits."""


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

    An embedding whose label is no whole number becomes NaN, and so does the loss. (Out
    of compiled code such a label is refused.)

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
    refuse_few_rows(labels, 2, "or there is no pair to compare")
    if "float" in keras.backend.standardize_dtype(labels.dtype):
        known = ops.expand_dims(are_class_ids(labels), 1)
        embeddings = ops.where(known, embeddings, float("nan"))
    return labels, embeddings


def refuse_long(embeddings: Tensor) -> Tensor:
    """Refuse embeddings whose squares, summed over a batch, may not fit their type.

    Inside a compiled function, and on torch, such an embedding becomes NaN, and so does
    the loss: its products would be NaN or, worse, a wrong number.

    Args:
        embeddings: Embeddings `[B, dimension]` that a loss does not normalize.

    Raises:
        ValueError: A component is too large.
    """
    kind = keras.backend.standardize_dtype(embeddings.dtype)
    if kind == "float16":
        return embeddings  # of at most 65504
    most = 1e140 if kind == "float64" else LARGEST_COMPONENT
    # NaN is not too large: it shows by itself.
    is_long = ops.any(ops.abs(embeddings) > most, axis=1, keepdims=True)
    if not _may_be_in_fit(embeddings) and ops.convert_to_numpy(is_long).any():
        largest = np.nanmax(np.abs(ops.convert_to_numpy(embeddings).astype("float64")))
        raise ValueError(
            f"The components of embeddings (`y_pred`) must be at most {most:g} in "
            f"size where the loss does not normalize them, as {kind} cannot hold the "
            f"distances. Received: {largest:g}. If training diverges, lower the "
            "learning rate, or let the loss or the model normalize the embeddings."
        )
    return ops.where(is_long, float("nan"), embeddings)


def refuse_few_rows(labels: Tensor, least: int, reason: str) -> None:
    """Refuse a batch of too few rows, but not the last one of an epoch of `fit`."""
    rows = labels.shape[0]
    if rows is not None and rows < least and not _may_be_in_fit(labels):
        raise ValueError(
            f"A batch must have at least {least} row{'s' * (least > 1)}, {reason}. "
            f"Received: {rows} row{'s' * (rows != 1)}."
        )


def checked_labels(labels: Tensor, rows: int | None) -> Tensor:
    """Check class ids and return them as a tensor `[B]` of unchanged type.

    Args:
        labels: Labels `[B]` or `[B, 1]`.
        rows: Number of rows of the model's output, None if unknown.

    Raises:
        ValueError: As the messages say.
    """
    given = labels if _is_tensor(labels) else _numbers(labels)
    labels = ops.convert_to_tensor(given)
    if len(labels.shape) == 2 and labels.shape[1] == 1:
        labels = ops.squeeze(labels, axis=1)
    if len(labels.shape) != 1:
        raise ValueError(
            "The labels (`y_true`) must be one class id per row, of shape [batch] or "
            f"[batch, 1], not one-hot. Received: shape={tuple(labels.shape)}."
        )
    kind = keras.backend.standardize_dtype(labels.dtype)
    if "int" not in kind and "float" not in kind and kind != "bool":
        raise ValueError(f"{_NUMBERS} Received: dtype={kind}.")
    if None not in (labels.shape[0], rows) and labels.shape[0] != rows:
        raise ValueError(
            "The labels (`y_true`) and the embeddings (`y_pred`) must have equally "
            f"many rows. Received: {labels.shape[0]} labels and {rows} embeddings."
        )
    if isinstance(given, np.ndarray):
        _refuse_cut(given, kind)
    if "float" in kind and not is_traced(labels):
        _refuse_fractions(ops.convert_to_numpy(labels))
    return labels


def are_class_ids(labels: Tensor) -> Tensor:
    """Return which labels are whole numbers, `[B]`: NaN is none, nor is 0.5."""
    if "float" not in keras.backend.standardize_dtype(labels.dtype):
        return ops.ones_like(labels, dtype="bool")
    whole = ops.equal(labels, ops.floor(labels))
    return ops.logical_and(whole, ops.isfinite(labels))


def _is_tensor(labels: Any) -> bool:
    if isinstance(labels, np.ndarray):
        return False
    return keras.backend.is_keras_tensor(labels) or bool(ops.is_tensor(labels))


def _numbers(labels: Any) -> NDArray[Any]:
    """Return labels that are no tensor as an array of numbers."""
    array = as_array("y_true", labels)
    if array.dtype.kind == "O" and array.ndim in (1, 2):
        array = as_labels("y_true", labels)  # nullable columns, or mixed types
    if array.dtype.kind not in "iufbV":
        raise ValueError(f"{_NUMBERS} Received: dtype={array.dtype}.")
    return array


def _refuse_cut(given: NDArray[Any], kind: str) -> None:
    """Refuse ids that the tensor's type cannot hold: two classes might become one."""
    if given.dtype.kind not in "iu" or not given.size or "int" not in kind:
        return
    limits = np.iinfo(kind)
    for extreme in (int(given.min()), int(given.max())):
        if not limits.min <= extreme <= limits.max:
            raise ValueError(
                f"The labels (`y_true`) must fit {kind}, all that this backend holds "
                f"here. Received: {extreme}. Number the classes by "
                "`tfdml.batch_designs.encode_labels`, or set JAX_ENABLE_X64=1 for JAX."
            )


def _refuse_fractions(values: NDArray[Any]) -> None:
    numbers = values.astype("float64")  # NumPy knows no bfloat16
    wrong = numbers[~((numbers == np.floor(numbers)) & np.isfinite(numbers))]
    if not wrong.size:
        return
    remedy = "For continuous labels use a ContinuousLoss."
    if np.isnan(wrong[0]):
        remedy = "A missing label is of no class: leave such rows out."
    raise ValueError(
        "The labels (`y_true`) must be whole numbers, the ids of classes. "
        f"Received: {wrong[0]}. {remedy}"
    )


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
