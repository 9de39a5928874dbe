"""Losses for labels that are no classes: what they share, and log-ratio."""

from collections.abc import Callable
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from tfdml._arguments import at_least_zero
from tfdml._devices import has_gpu
from tfdml.losses._base import MetricLoss
from tfdml.ops import Tensor, is_traced, same_labels, squared_label_distance


class ContinuousLoss(MetricLoss):
    """A loss on labels that are no classes but have a distance.

    The batch is square: every item is an anchor and in the gallery. A subclass writes
    `call(labels, embeddings)`, where it asks `label_distances` for D(y_a, y_i).

    Args:
        label_distance: D between labels: `"squared_euclidean"`, `"precomputed"` or a
            function of (labels, labels).
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.
    """

    def __init__(
        self,
        label_distance: str | Callable[[Tensor, Tensor], Tensor],
        *,
        reduction: str | None,
        name: str | None,
        dtype: str | None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        known = ("squared_euclidean", "precomputed")
        if not callable(label_distance) and label_distance not in known:
            raise ValueError(
                f"`label_distance` must be one of {known} or a function. "
                f"Received: label_distance={label_distance!r}."
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
        labels = ops.convert_to_tensor(y_true)
        if len(labels.shape) == 0:
            raise ValueError(
                "The labels (`y_true`) must have a row for each embedding. "
                "Received: a scalar."
            )
        rows = labels.shape[0], embeddings.shape[0]
        if None not in rows and rows[0] != rows[1]:
            raise ValueError(
                "The labels (`y_true`) and the embeddings (`y_pred`) must have as many "
                f"rows. Received: {rows[0]} labels and {rows[1]} embeddings."
            )
        return labels, embeddings

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
        """Type of label distances: half precision would merge them."""
        # Not `keras.backend.result_type`, which knows no float64 on JAX.
        kinds = keras.backend.standardize_dtype(labels.dtype), self.dtype
        return "float64" if "float64" in kinds else "float32"

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        distance: Any = self.label_distance
        if callable(distance):
            distance = keras.saving.serialize_keras_object(distance)
        return {**super().get_config(), "label_distance": distance}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Rebuild the loss; a label distance of your own must be registered in Keras.

        See `keras.saving.register_keras_serializable`.
        """
        distance = config.get("label_distance")
        if isinstance(distance, dict):
            distance = keras.saving.deserialize_keras_object(distance)
            config = {**config, "label_distance": distance}
        return cls(**config)


def other_items(embeddings: Tensor) -> Tensor:
    """Return a mask `[B, B]`: False on the diagonal, where an item meets itself."""
    place = ops.arange(ops.shape(embeddings)[0])
    return ops.logical_not(same_labels(place, place))


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

    Division by it is exact: what was equal stays equal, and nothing else becomes so.
    """
    kind = np.finfo(keras.backend.standardize_dtype(x.dtype))
    # From a table, as not every backend computes a power exactly.
    powers = 2.0 ** np.arange(kind.minexp, kind.maxexp)
    exponent = ops.round(ops.log2(ops.where(x > 0, x, 1)))
    exponent = ops.clip(exponent, kind.minexp, kind.maxexp - 1)
    place = ops.cast(exponent, "int32") - kind.minexp
    return ops.take(ops.convert_to_tensor(powers, dtype=x.dtype), place)


@keras.saving.register_keras_serializable(package="tfdml")
class LogRatioLoss(ContinuousLoss):
    """Log-ratio loss: ratios of distances between embeddings equal those of labels.

        l(a, i, j) = { log D(f_a, f_i) / D(f_a, f_j) - log D(y_a, y_i) / D(y_a, y_j) }^2

    with D the squared Euclidean distance and f embeddings of any length. The loss of an
    anchor a is the mean over all pairs {i, j} of the other items (dense triplets), and
    the loss of the batch is the mean over the anchors that have a pair.

    With u_i = log D(f_a, f_i) - log D(y_a, y_i) the mean over pairs is twice the sample
    variance of u, so that no triplet is formed: memory is O(B^2). The centred form is
    used, as the difference of two large sums loses digits. The ratios are those of
    distances, so labels and embeddings may be of any scale, the embeddings down to
    `epsilon`.

    Labels are continuous here, and need a square matrix: every item of the batch is an
    anchor and in the gallery. An item at label distance 0 from an anchor (a duplicate)
    is left out of its list, as the target ratio is undefined. An anchor with fewer than
    two others adds 0. NaN in a label or an embedding makes the loss NaN.

    Args:
        label_distance: D between labels. `"squared_euclidean"` takes `y_true` as
            vectors `[B]` or `[B, ...]`. `"precomputed"` takes `y_true` as the matrix of
            distances `[B, B]`; row a belongs to anchor a, and the diagonal does not
            count. A function of (labels, labels) returns that matrix, for example
            `segmentation_distance` or `caption_distance` of `tfdml.ops`.
            Distances must not be negative.
        epsilon: What is added to D(f_a, f_i) before the logarithm, at least 0. With 0,
            an item whose embedding equals the anchor's is left out, which makes the
            loss jump.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range, or a matrix of label distances is not
            `[B, B]`, or, where values are known, negative. Inside a compiled function
            a negative distance makes the loss NaN.

    Example:
        >>> loss = LogRatioLoss(epsilon=0.0)
        >>> poses = np.array([[0.0], [1.0], [3.0]])
        >>> float(loss(poses, 5 * poses)) < 1e-9  # equal ratios
        True

    The authors' code differs from their paper: it takes unsquared distances, which
    makes the loss a quarter, adds 1e-6 to label distances too, so that one duplicate
    outweighs the batch, and uses the first item of a batch as the only anchor
    (`reduction=None` gives the anchors one by one).

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, Eq. 3 and 5.
    """

    def __init__(
        self,
        label_distance: str | Callable[[Tensor, Tensor], Tensor] = "squared_euclidean",
        epsilon: float = 1e-6,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "log_ratio_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(label_distance, reduction=reduction, name=name, dtype=dtype)
        self.epsilon = at_least_zero("epsilon", epsilon)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor, times B / (anchors that have a pair)."""
        # A factor changes no ratio.
        targets, _ = self.label_distances(labels, embeddings)
        distances = self._shifted_distances(embeddings)
        # NaN is unequal to 0, so it is not left out.
        apart = ops.logical_and(ops.not_equal(targets, 0), ops.not_equal(distances, 0))
        listed = ops.logical_and(other_items(embeddings), apart)
        targets = ops.log(ops.where(listed, targets, ops.ones_like(targets)))
        logs = ops.log(ops.where(listed, distances, ops.ones_like(distances)))
        u = logs - ops.cast(targets, logs.dtype)
        count = ops.sum(ops.cast(listed, u.dtype), axis=1, keepdims=True)
        mean = ops.sum(u, axis=1, keepdims=True) / ops.maximum(count, 1)
        squares = ops.where(listed, ops.square(u - mean), ops.zeros_like(u))
        count = ops.squeeze(count, axis=1)
        values = 2 * ops.sum(squares, axis=1) / ops.maximum(count - 1, 1)
        has_pair = ops.cast(count >= 2, values.dtype)
        anchors = ops.sum(has_pair)
        batch = ops.cast(ops.shape(embeddings)[0], values.dtype)
        return has_pair * values * batch / ops.maximum(anchors, 1)

    def _shifted_distances(self, embeddings: Tensor) -> Tensor:
        """Compute D(f_a, f_i) + epsilon, `[B, B]`, up to a factor."""
        root = self.epsilon**0.5
        scale = ops.maximum(ops.stop_gradient(ops.max(ops.abs(embeddings))), root)
        scale = ops.where(ops.equal(scale, 0), ops.ones_like(scale), scale)
        rows = embeddings / scale
        # Distances do not change, and lose fewer digits near the origin.
        rows = rows - ops.stop_gradient(ops.mean(rows, axis=0, keepdims=True))
        products = _own_products(rows)
        # Squared lengths out of the same product: so equal rows are at distance 0.
        lengths = ops.diagonal(products)
        distances = ops.expand_dims(lengths, 1) + lengths - 2 * products
        return ops.relu(distances) + ops.square(root / scale)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _own_products(rows: Tensor) -> Tensor:
    """Dot product of every row with every row, `[B, B]`, to the digits of float32.

    NVIDIA's GPUs round the factors of a float32 product to 11 bits (TF32) unless told
    otherwise, and the logarithm of a small distance would be that of the rounding. So
    there the rows are taken apart into 11 bits and the rest: TensorFlow's switch for
    the whole process is no part of a compiled step.
    """
    if not has_gpu() or keras.backend.standardize_dtype(rows.dtype) != "float32":
        return ops.matmul(rows, ops.transpose(rows))
    many = (2.0**13 + 1) * rows
    high = rows + ops.stop_gradient(many - (many - rows) - rows)
    low = ops.stop_gradient(rows - high)  # all of the gradient is that of `high`
    mixed = ops.matmul(high, ops.transpose(low))
    return ops.matmul(high, ops.transpose(high)) + (mixed + ops.transpose(mixed))
