"""Contrastive losses: every pair of the batch on its own."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero
from tfdml.losses._base import PairLoss
from tfdml.ops import Tensor, anchors_per_pair, euclidean_distances, unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class ContrastiveLoss(PairLoss):
    """Contrastive loss: draws positives together, pushes negatives a margin apart.

    With D the Euclidean distance of two embeddings, for positives and negatives

        g = D^2,    h = max(0, m - D)^2

    and the loss is the mean of both over all ordered pairs of two different items.
    The value of an anchor is the mean over the other items. With
    `separate_means=True` it is the mean of g over the positive pairs plus the mean of
    h over the negative pairs of the batch: few positives then weigh as much as many
    negatives.

    An anchor without positives still pushes its negatives away, and one without
    negatives draws its positives near. Equal embeddings have no direction to part in:
    their distance of 0 has a zero gradient. The papers leave the length of the
    embeddings free (`normalize=False`); by default they are compared as unit vectors,
    whose distances are from 0 to 2.

    Args:
        margin: m, the distance that negatives should have, above 0. On unit vectors
            below 2.
        separate_means: Whether positive and negative pairs are averaged each for
            themselves.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> loss = ContrastiveLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (2 + 2 + 1 + 1 + 0 + 0) / 6
        1.0

    Reference:
        Hadsell, Chopra and LeCun, Dimensionality Reduction by Learning an Invariant
        Mapping, CVPR 2006; over all pairs of a batch as in Hong et al., Deep Metric
        Learning via Weighted Contrastive Loss, Eqs. 4 and 5.
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        separate_means: bool = False,
        normalize: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "contrastive_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.margin: float = above_zero("margin", margin)
        self.separate_means: bool = separate_means
        self.normalize: bool = normalize

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Measure Euclidean distances `[A, G]`."""
        if self.normalize:
            anchors, gallery = unit_rows(anchors), unit_rows(gallery)
        return euclidean_distances(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor from distances. See `PairLoss.pair_loss`."""
        near = ops.square(scores)
        far = ops.square(ops.relu(self.margin - scores))
        if self.separate_means:
            near = near * anchors_per_pair(positives, near.dtype)
            far = far * anchors_per_pair(negatives, far.dtype)
            scale: Tensor = 1.0
        else:
            scale = anchors_per_pair(ops.logical_or(positives, negatives), near.dtype)
        values = ops.where(positives, near, ops.where(negatives, far, 0))
        return ops.sum(values, axis=1) * scale

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "margin": self.margin,
            "separate_means": self.separate_means,
            "normalize": self.normalize,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class CosineContrastiveLoss(PairLoss):
    """Contrastive loss on cosine similarity: raises positives, lowers negatives.

    With S the cosine similarity and lambda a threshold, the loss of an anchor is

        sum over positives of (1 - S)  +  sum over negatives of max(0, S - lambda)

    and the loss of the batch is the mean over its anchors. Pairs are summed, so the
    value grows with the batch. An anchor without positives still lowers its
    negatives, and one without negatives raises its positives.

    Code published with the top-k precision loss adds S, not S - lambda, for each
    negative above the threshold: another value with the same gradient.

    Args:
        threshold: lambda, the similarity that negatives should stay below, from -1
            to 1.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `threshold` is out of range.

    Example:
        >>> loss = CosineContrastiveLoss(threshold=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (1.5 + 1 + 0.5) / 3
        1.0

    Reference:
        Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric
        Learning, CVPR 2019, which states the contrastive loss in this form.
    """

    def __init__(
        self,
        threshold: float = 0.5,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_contrastive_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if not -1 <= threshold <= 1:
            raise ValueError(
                "`threshold` must be a cosine similarity, from -1 to 1. "
                f"Received: threshold={threshold}."
            )
        self.threshold: float = float(threshold)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        wrong = ops.where(negatives, ops.relu(scores - self.threshold), 0)
        return ops.sum(ops.where(positives, 1 - scores, wrong), axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "threshold": self.threshold}
