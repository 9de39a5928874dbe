"""Define the base class of the losses on continuous labels."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml._core.arrays import as_array
from tfdml._core.batches import is_traced, refuse_few_rows, refuse_long
from tfdml._core.marks import refuse_marks
from tfdml._core.tensors import Tensor, same_labels
from tfdml.losses._base import MetricLoss
from tfdml.messages import shown
from tfdml.ops import squared_label_distance


class ContinuousLoss(MetricLoss):
    """A loss on continuous labels, which have a distance instead of classes.

    Every item of the batch is an anchor and in the gallery. A subclass writes
    `call(labels, embeddings)` and gets D(y_a, y_i) from `label_distances`.

    Args:
        label_distance: D between labels: `"squared_euclidean"`, `"precomputed"` or a
            function of (labels, labels).
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.
    """

    def __init__(
        self,
        label_distance: str | Callable[[Tensor, Tensor], Tensor] = "squared_euclidean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        known = ("squared_euclidean", "precomputed")
        is_known = isinstance(label_distance, str) and label_distance in known
        if not callable(label_distance) and not is_known:
            raise ValueError(
                f"`label_distance` must be one of {known} or a function. "
                f"Received: label_distance={shown(label_distance)}."
            )
        self.label_distance = label_distance

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check continuous labels and embeddings. See `MetricLoss.checked`."""
        embeddings = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        if len(embeddings.shape) != 2:
            raise ValueError(
                "The embeddings (`y_pred`) must have the shape [batch, dimension]. "
                f"Received: shape={tuple(embeddings.shape)}."
            )
        refuse_marks(y_pred)
        labels = ops.convert_to_tensor(_numbers(y_true))
        if len(labels.shape) == 0:
            raise ValueError(
                "The labels (`y_true`) must have one row per embedding. "
                "Received: a scalar."
            )
        rows = labels.shape[0], embeddings.shape[0]
        if None not in rows and rows[0] != rows[1]:
            raise ValueError(
                "The labels (`y_true`) and the embeddings (`y_pred`) must have equally "
                f"many rows. Received: {rows[0]} labels and {rows[1]} embeddings."
            )
        refuse_few_rows(labels, 1, "or there is no mean")
        return labels, refuse_long(embeddings) if self.compares_lengths else embeddings

    def label_distances(
        self, labels: Tensor, embeddings: Tensor
    ) -> tuple[Tensor, Tensor | float]:
        """Compute D(y_a, y_i) in a unit that keeps squares from running out of range.

        Returns:
            Distances `[B, B]` in float32, or float64 if labels or loss are, and a scale
            s, a power of two: D(y_a, y_i) is s^2 times the distance, exactly.
        """
        scale: Tensor | float = 1.0
        if self.label_distance == "precomputed":
            distances = labels
        elif callable(self.label_distance):
            distances = ops.convert_to_tensor(self.label_distance(labels, labels))
        else:
            if keras.backend.standardize_dtype(labels.dtype) in ("int32", "int64"):
                labels = labels - labels[:1]  # floats would merge large ones
            labels = ops.cast(labels, self._label_dtype(labels))
            scale = _power_of_two_near(ops.max(ops.abs(labels)))
            labels = labels / scale
            distances = squared_label_distance(labels, labels)
        _check_label_distances(distances, embeddings.shape[0])
        distances = ops.cast(distances, self._label_dtype(distances))
        return ops.stop_gradient(distances), scale

    def _label_dtype(self, labels: Tensor) -> str:
        """Return the type of label distances: half precision would merge them."""
        # Not `keras.backend.result_type`, which has no float64 on JAX.
        types = keras.backend.standardize_dtype(labels.dtype), self.dtype
        return "float64" if "float64" in types else "float32"


def _numbers(labels: Any) -> Any:
    """Return labels that are no tensors as an array of numbers."""
    if keras.backend.is_keras_tensor(labels) or ops.is_tensor(labels):
        return labels
    array = as_array("y_true", labels)
    if array.dtype.kind not in "iufbV":
        raise ValueError(
            "The labels (`y_true`) must be numbers, which have a distance. "
            f"Received: dtype={array.dtype}."
        )
    return array


def other_items(embeddings: Tensor) -> Tensor:
    """Return a mask `[B, B]` of the pairs of two different items."""
    position = ops.arange(ops.shape(embeddings)[0], dtype="int32")
    return ops.logical_not(same_labels(position, position))


def _check_label_distances(distances: Tensor, rows: int | None) -> None:
    if len(distances.shape) != 2 or any(
        None not in (side, rows) and side != rows for side in distances.shape
    ):
        raise ValueError(
            "The label distances must be a square matrix [batch, batch]. "
            f"Received: shape={tuple(distances.shape)} for {rows} embeddings."
        )
    if not is_traced(distances):
        smallest = np.min(ops.convert_to_numpy(distances), initial=0)
        if smallest < 0:
            raise ValueError(
                f"Label distances must be at least 0. Received: {smallest}."
            )


def _power_of_two_near(x: Tensor) -> Tensor:
    """Return a power of two near a scalar, and 1 for 0 and NaN.

    Division by it is exact: equal labels stay equal, and different ones different.
    """
    kind = np.finfo(keras.backend.standardize_dtype(x.dtype))
    # From a table, as not every backend computes a power exactly.
    powers = 2.0 ** np.arange(kind.minexp, kind.maxexp)
    exponent = ops.round(ops.log2(ops.where(x > 0, x, 1)))
    exponent = ops.clip(exponent, kind.minexp, kind.maxexp - 1)
    index = ops.cast(exponent, "int32") - kind.minexp
    return ops.take(ops.convert_to_tensor(powers, dtype=x.dtype), index)
