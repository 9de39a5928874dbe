"""Offer the losses of tensorflow-addons under their old names and arguments.

A model saved with a loss of tensorflow-addons ("Addons>TripletSemiHardLoss" and so on)
loads after `import tfdml`. docs/migration/tensorflow-addons.md lists the errors of
tensorflow-addons that these losses do not repeat.
"""

from collections.abc import Callable
from typing import Any, Self

import keras
from keras import ops

from tfdml._core.arguments import at_least_zero, boolean
from tfdml._core.tensors import Tensor, same_labels
from tfdml.losses import (
    HardTripletLoss,
    LiftedStructureLoss,
    MetricLoss,
    SemiHardTripletLoss,
)
from tfdml.messages import shown
from tfdml.ops import (
    cosine_similarities,
    euclidean_distances,
    label_masks,
    squared_distances,
)

__all__ = [
    "ContrastiveLoss",
    "LiftedStructLoss",
    "NpairsLoss",
    "TripletHardLoss",
    "TripletSemiHardLoss",
]

_METRICS: dict[str, Callable[[Tensor], Tensor]] = {
    "L2": lambda x: euclidean_distances(x, x),
    "squared-L2": lambda x: squared_distances(x, x),
    "angular": lambda x: ops.relu(1 - cosine_similarities(x, x)),
}


class _AddonsLoss(MetricLoss):
    """A loss that also loads from the configurations of tensorflow-addons."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the loss, also from a file that tensorflow-addons wrote.

        Its losses computed the mean themselves and stored `reduction="none"`; here the
        mean over the batch is Keras' reduction.
        """
        if config.get("reduction") in ("none", "auto"):
            config = {**config, "reduction": "sum_over_batch_size"}
        return super().from_config(config)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        # "none" is what tensorflow-addons stored.
        reduction = config["reduction"]
        return {**config, "reduction": None if reduction == "none" else reduction}


class _TripletLoss(_AddonsLoss):
    """A triplet loss on distances that are given by their name or a function."""

    needs_positives = True

    def __init__(
        self,
        margin: float = 1.0,
        distance_metric: str | Callable[[Tensor], Tensor] = "L2",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not callable(distance_metric) and distance_metric not in _METRICS:
            raise ValueError(
                f"`distance_metric` must be one of {', '.join(_METRICS)}, or a "
                "function of the embeddings [B, dimension] to their distances [B, B]. "
                f"Received: distance_metric={shown(distance_metric)}."
            )
        self.margin: float = at_least_zero("margin", margin)
        self.distance_metric: str | Callable[[Tensor], Tensor] = distance_metric

    @property
    def compares_lengths(self) -> bool:
        """Whether embeddings are compared as they are."""
        return self.distance_metric in ("L2", "squared-L2")

    def _distances(self, embeddings: Tensor) -> Tensor:
        if callable(self.distance_metric):
            return self.distance_metric(embeddings)
        return _METRICS[self.distance_metric](embeddings)


class TripletSemiHardLoss(_TripletLoss, package="Addons"):
    """Triplet loss of each positive pair with its semi-hard negative.

    The rule and the formula are those of `tfdml.losses.SemiHardTripletLoss`, in
    O(B^2) memory. A batch without positives, or without negatives, has the loss 0.

    Args:
        margin: By how much the negative must be farther, at least 0.
        distance_metric: `"L2"` (Euclidean) or `"squared-L2"`, both without
            normalization; `"angular"` (1 - cosine similarity, not an angle); or a
            function of the embeddings `[B, dimension]` to their distances `[B, B]`. A
            model saved with a function needs it registered with Keras.
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `keras.losses.Loss`; tensorflow-addons
            ignored `reduction`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = TripletSemiHardLoss(margin=1.0, distance_metric="angular")
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (1 - 2 + 1, 1 - 1 + 1) / 2
        0.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        distance_metric: str | Callable[[Tensor], Tensor] = "L2",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        name = name or "triplet_semihard_loss"
        super().__init__(margin, distance_metric, name=name, **kwargs)
        self._rule = SemiHardTripletLoss(margin, dtype=self.dtype)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        return self._rule.pair_loss(self._distances(embeddings), *label_masks(labels))


class TripletHardLoss(_TripletLoss, package="Addons"):
    """Triplet loss of the farthest positive and the nearest negative of each anchor.

    Over all B anchors: L = 1/B sum max(0, max_p D_ap - min_n D_an + margin), and with
    `soft=True` L = 1/B sum log(1 + exp(max_p D_ap - min_n D_an)), without the margin.
    An anchor without positives or without negatives adds 0, but counts in B.

    Args:
        margin: By how much the negative must be farther, at least 0.
        soft: Whether the hinge is replaced by the soft plus, which has no margin.
        distance_metric: As in `TripletSemiHardLoss`.
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `keras.losses.Loss`; tensorflow-addons
            ignored `reduction`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = TripletHardLoss(margin=1.0, distance_metric="angular")
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 1 + 0) / 3
        0.333
    """

    def __init__(
        self,
        margin: float = 1.0,
        soft: bool = False,
        distance_metric: str | Callable[[Tensor], Tensor] = "L2",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(margin, distance_metric, name=name, **kwargs)
        self.soft: bool = boolean("soft", soft)
        margin = 0.0 if soft else margin
        self._rule = HardTripletLoss(margin, soft=soft, dtype=self.dtype)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the loss of each anchor, `[B]`."""
        distances = self._distances(embeddings)
        return self._rule.anchor_losses(distances, *label_masks(labels))[0]


class LiftedStructLoss(_AddonsLoss, package="Addons"):
    """Lifted structure loss of embeddings that are not normalized.

    The formula is that of `tfdml.losses.LiftedStructureLoss(normalize=False)`, in
    O(B^2) memory. A batch without positives, or without negatives, has the loss 0.

    Args:
        margin: By how much negatives should be farther, above 0.
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `keras.losses.Loss`; tensorflow-addons
            ignored `reduction`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = LiftedStructLoss(margin=1.0)
        >>> embeddings = [[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 2)  # (3 - 1.747)^2 / 2
        0.79
    """

    needs_positives = True
    compares_lengths = True

    def __init__(
        self,
        margin: float = 1.0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self._rule = LiftedStructureLoss(margin, normalize=False, dtype=self.dtype)

    @property
    def margin(self) -> float:
        """By how much negatives should be farther."""
        return self._rule.margin

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        return self._rule.call(labels, embeddings)


class NpairsLoss(_AddonsLoss, package="Addons"):
    """Cross entropy of a ready-made matrix of similarities against equal labels.

    With S the model's output, similarities of B anchors (rows) with B positives
    (columns), where anchor i and positive i have the label y_i, and C_i the number of
    columns of the label y_i (at least 1, its own):

        L = -1/B sum_i 1/C_i sum_(j: y_j = y_i) log(e^S_ij / sum_k e^S_ik)

    No pair is left out: row i and column i are two images. There is no L2 term.

    Args:
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `keras.losses.Loss`; tensorflow-addons
            ignored `reduction`.

    Example:
        >>> loss = NpairsLoss()
        >>> round(float(loss([0, 1], [[2.0, 0.0], [0.0, 2.0]])), 3)  # log(1 + e^-2)
        0.127
    """

    def __init__(self, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the cross entropy of each row, `[B]`.

        Raises:
            ValueError: The output is not a square matrix.
        """
        rows, columns = embeddings.shape
        if None not in (rows, columns) and rows != columns:
            raise ValueError(
                "`y_pred` must be a square matrix of similarities, [batch, batch]; for "
                "embeddings see `tfdml.losses.NPairLoss`. "
                f"Received: shape={(rows, columns)}."
            )
        same = same_labels(labels, labels)
        target = ops.cast(same, embeddings.dtype)
        target = target / ops.sum(target, axis=1, keepdims=True)
        return -ops.sum(target * ops.log_softmax(embeddings, axis=1), axis=1)


@keras.saving.register_keras_serializable(package="Addons")
class ContrastiveLoss(keras.losses.Loss):
    """Contrastive loss of ready-made distances of pairs.

    With d the distance of a pair, y = 1 for a positive pair and 0 for a negative pair:

        L = y d^2 + (1 - y) max(0, margin - d)^2

    (In Keras' siamese example 1 means a negative pair.) For labels and embeddings see
    `tfdml.losses.ContrastiveLoss`.

    Args:
        margin: Distance that negative pairs should keep, at least 0.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        **kwargs: `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> float(ContrastiveLoss()([1, 0], [0.5, 0.5]))  # (0.25 + 0.25) / 2
        0.25
    """

    def __init__(
        self,
        margin: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "contrastive_loss",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction=reduction, name=name or "contrastive_loss", **kwargs)
        self.margin: float = at_least_zero("margin", margin)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Compute the loss of each pair.

        Args:
            y_true: 1 for positive pairs, 0 for negative ones, `[B]` or `[B, 1]`.
            y_pred: Distances, `[B]` or `[B, 1]`.

        Returns:
            Tensor `[B]`.
        """
        # Unequal ranks would broadcast to every label with every distance.
        y_true, y_pred = ops.reshape(y_true, (-1,)), ops.reshape(y_pred, (-1,))
        near = y_true * ops.square(y_pred)
        return near + (1 - y_true) * ops.square(ops.relu(self.margin - y_pred))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ContrastiveLoss":
        """Build the loss, also from a file that tensorflow-addons wrote."""
        if config.get("reduction") == "auto":  # as Keras 2 called its default
            config = {**config, "reduction": "sum_over_batch_size"}
        return cls(**config)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "margin": self.margin, "dtype": self.dtype}
