"""Lifted structure losses: a positive pair against all negatives of both its ends."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, finite
from tfdml.losses._base import MetricLoss, PairLoss
from tfdml.ops import (
    Tensor,
    anchors_per_pair,
    euclidean_distances,
    label_masks,
    masked_logsumexp,
    softplus,
    unit_rows,
)


@keras.saving.register_keras_serializable(package="tfdml")
class LiftedStructureLoss(MetricLoss):
    """Lifted structure loss: each positive pair against the negatives of both items.

    With D the Euclidean distance and m a margin, a positive pair (i, j) has

        J_ij = D_ij + log(sum over negatives k of i of e^(m - D_ik)
                          + sum over negatives l of j of e^(m - D_jl))

    and the loss is 1 / (2 |P|) sum over the unordered positive pairs P of
    max(0, J_ij)^2. It is computed from one log-sum-exp r_i of each row,
    J_ij = D_ij + log(e^r_i + e^r_j): O(B^2), where published codes list all negatives
    of all pairs.

    The value of an anchor is the sum over the pairs that it is in, scaled so that the
    mean over the batch is the loss. An anchor without positives adds 0, and a batch of
    one class has the loss 0. The negatives of both ends come into one value, so this
    loss needs a batch that is compared with itself.

    The paper does not normalise embeddings (`normalize=False`); by default they are
    compared as unit vectors, whose distances are from 0 to 2. The code of its authors
    makes 0 / 0 of equal positives; here the gradient at a distance of 0 is 0.

    Args:
        margin: m, above 0.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> loss = LiftedStructureLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (log(2 / e))^2 is cut to 0
        0.0

    Reference:
        Song, Xiang, Jegelka and Savarese, Deep Metric Learning via Lifted Structured
        Feature Embedding, CVPR 2016, Eq. 4.
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        normalize: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "lifted_structure_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.margin: float = above_zero("margin", margin)
        self.normalize: bool = normalize

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the part of each anchor in the loss, `[B]`."""
        positives, negatives = label_masks(labels)
        if self.normalize:
            embeddings = unit_rows(embeddings)
        distances = euclidean_distances(embeddings, embeddings)
        # Items of one class have the same negatives: both ends of a pair or neither.
        found = ops.any(negatives, axis=1)
        rivals = masked_logsumexp(self.margin - distances, negatives)
        rivals = ops.where(found, rivals, 0)
        pairs = ops.logical_and(positives, ops.expand_dims(found, 1))
        row, column = ops.expand_dims(rivals, 1), ops.expand_dims(rivals, 0)
        lifted = ops.relu(distances + row + softplus(column - row))  # log(e^r + e^c)
        values = ops.sum(ops.where(pairs, ops.square(lifted), 0), axis=1)
        # Each pair is counted from both ends: 1 / (2 |P|) sum_P = 1 / (4 |P|) of it.
        return values * (0.5 * anchors_per_pair(pairs, values.dtype))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "margin": self.margin,
            "normalize": self.normalize,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class GeneralizedLiftedStructureLoss(PairLoss):
    """Generalised lifted structure loss: all positives against all negatives.

    With D the Euclidean distance and m a margin, the loss of an anchor is

        max(0, log(sum over positives of e^D) + log(sum over negatives of e^(m - D)))

    and the loss of the batch is the mean over the anchors that have positives and
    negatives. Others add 0. (The value of an anchor is scaled by all anchors / these
    anchors, so that the mean over the batch is that mean.)

    By default embeddings are compared as unit vectors; the paper, which does not
    normalise, adds an L2 term on their length to the loss.

    Args:
        margin: m, above 0.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> loss = GeneralizedLiftedStructureLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (2 + 1 and 2 + 1 - 2) / 2
        2.0

    Reference:
        Hermans, Beyer and Leibe, In Defense of the Triplet Loss for Person
        Re-Identification, 2017, Eq. 7.
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        normalize: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "generalized_lifted_structure_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.margin: float = above_zero("margin", margin)
        self.normalize: bool = normalize

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Measure Euclidean distances `[A, G]`."""
        if self.normalize:
            anchors, gallery = unit_rows(anchors), unit_rows(gallery)
        return euclidean_distances(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor from distances. See `PairLoss.pair_loss`."""
        return _lifted(
            masked_logsumexp(scores, positives),
            masked_logsumexp(self.margin - scores, negatives),
            positives,
            negatives,
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "margin": self.margin,
            "normalize": self.normalize,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class CosineLiftedStructureLoss(PairLoss):
    """Lifted structure loss on cosine similarity, as General Pair Weighting states it.

    With S the cosine similarity, the loss of an anchor is

        max(0, (1 / alpha) log(sum over positives of e^(alpha (lambda - S)))
               + (1 / beta) log(sum over negatives of e^(beta S)))

    and the loss of the batch is the mean over the anchors that have positives and
    negatives. Others add 0, as in `GeneralizedLiftedStructureLoss`.

    Args:
        threshold: lambda, any finite number.
        positive_scale: alpha, above 0. 1 in the paper.
        negative_scale: beta, above 0. 1 in the paper.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = CosineLiftedStructureLoss(threshold=0.5)
        >>> embeddings = [[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (1.5 + 1 and 1.5 - 1) / 2
        1.5

    Reference:
        Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric
        Learning, CVPR 2019, section 3.2.
    """

    def __init__(
        self,
        threshold: float = 0.5,
        positive_scale: float = 1.0,
        negative_scale: float = 1.0,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_lifted_structure_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.threshold: float = finite("threshold", threshold)
        self.positive_scale: float = above_zero("positive_scale", positive_scale)
        self.negative_scale: float = above_zero("negative_scale", negative_scale)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        right = self.positive_scale * (self.threshold - scores)
        wrong = self.negative_scale * scores
        return _lifted(
            masked_logsumexp(right, positives) / self.positive_scale,
            masked_logsumexp(wrong, negatives) / self.negative_scale,
            positives,
            negatives,
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "threshold": self.threshold,
            "positive_scale": self.positive_scale,
            "negative_scale": self.negative_scale,
        }


def _lifted(
    right: Tensor, wrong: Tensor, positives: Tensor, negatives: Tensor
) -> Tensor:
    """max(0, right + wrong), averaged over the anchors that have both kinds."""
    both = ops.logical_and(ops.any(positives, axis=1), ops.any(negatives, axis=1))
    values = ops.relu(ops.where(both, right, 0) + ops.where(both, wrong, 0))
    return values * anchors_per_pair(both, values.dtype)
