"""Losses with a smooth hinge on similarity: binomial deviance, multi-similarity."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, finite
from tfdml.losses._base import PairLoss
from tfdml.ops import (
    Tensor,
    anchors_per_pair,
    masked_logsumexp,
    masked_max,
    masked_mean,
    masked_min,
    softplus,
)


@keras.saving.register_keras_serializable(package="tfdml")
class BinomialDevianceLoss(PairLoss):
    """Binomial deviance loss: a smooth hinge on the similarity of each pair.

    With S the cosine similarity, the loss of an anchor i that has P_i positives and
    N_i negatives is

        (1 / P_i) sum over positives of log(1 + e^(alpha (lambda - S)))
        + (1 / N_i) sum over negatives of log(1 + e^(beta (S - lambda)))

    A kind of pair that an anchor does not have adds 0, so an anchor without positives
    still lowers its negatives. With `per_anchor=False` the means are taken over all
    positive and all negative pairs of the batch, as Yi et al. do; their cost of a
    negative is beta / alpha.

    Args:
        positive_scale: alpha, above 0. 2 in the papers.
        negative_scale: beta, above 0. 40 to 50 in the papers.
        threshold: lambda, the similarity that parts positives from negatives.
        per_anchor: Whether each anchor's pairs are averaged (Wang et al.), not the
            pairs of the batch (Yi et al.).
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: A scale or `threshold` is out of range.

    Example:
        >>> loss = BinomialDevianceLoss(positive_scale=2, threshold=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7], embeddings)), 4)  # log(1 + e^(2 * 0.5))
        1.3133

    Reference:
        Yi, Lei and Li, Deep Metric Learning for Practical Person Re-Identification,
        ICPR 2014; per anchor as in Wang et al., Multi-Similarity Loss with General
        Pair Weighting for Deep Metric Learning, CVPR 2019.
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 50.0,
        threshold: float = 0.5,
        *,
        per_anchor: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binomial_deviance_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.positive_scale: float = above_zero("positive_scale", positive_scale)
        self.negative_scale: float = above_zero("negative_scale", negative_scale)
        self.threshold: float = finite("threshold", threshold)
        self.per_anchor: bool = per_anchor

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        # A pair is of one kind: one softplus a pair, not two.
        costs = softplus(
            ops.where(
                positives,
                self.positive_scale * (self.threshold - scores),
                self.negative_scale * (scores - self.threshold),
            )
        )
        if self.per_anchor:
            return masked_mean(costs, positives) + masked_mean(costs, negatives)
        right = anchors_per_pair(positives, costs.dtype)
        wrong = anchors_per_pair(negatives, costs.dtype)
        shares = ops.where(positives, right, ops.where(negatives, wrong, 0))
        return ops.sum(costs * shares, axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "positive_scale": self.positive_scale,
            "negative_scale": self.negative_scale,
            "threshold": self.threshold,
            "per_anchor": self.per_anchor,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class MultiSimilarityLoss(PairLoss):
    """Multi-similarity loss: each pair weighed by itself and by its rivals.

    With S the cosine similarity, the loss of an anchor is

        (1 / alpha) log(1 + sum over positives of e^(-alpha (S - lambda)))
        + (1 / beta) log(1 + sum over negatives of e^(beta (S - lambda)))

    where mining keeps the negatives with S > (least similar positive) - epsilon and
    the positives with S < (most similar negative) + epsilon.

    With mining an anchor without positives or without negatives keeps no pair and
    adds 0. It still counts in the mean over the batch, as it does in the paper.
    Without mining such an anchor adds the term that it has. Duplicates of the anchor
    are positives like others; the authors' code leaves out every positive with
    S > 1 - 1e-5, to be rid of the anchor itself.

    The paper gives beta = 50 and lambda = 1, the authors' code beta = 40 and
    lambda = 0.5. The defaults are the paper's scales and the code's threshold: with
    lambda = 1 the terms of negatives vanish next to those of positives.

    Args:
        positive_scale: alpha, above 0.
        negative_scale: beta, above 0.
        threshold: lambda, a similarity.
        epsilon: How much a pair may be better than its hardest rival and still be
            kept. Any finite number; larger keeps more.
        mining: Whether only the kept pairs count.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = MultiSimilarityLoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (1.1566 + 0.6566 + 0) / 3
        0.6044

    Reference:
        Wang, Han, Huang, Dong and Scott, Multi-Similarity Loss with General Pair
        Weighting for Deep Metric Learning, CVPR 2019, Eqs. 8 to 10 and 15.
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 50.0,
        threshold: float = 0.5,
        epsilon: float = 0.1,
        mining: bool = True,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "multi_similarity_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.positive_scale: float = above_zero("positive_scale", positive_scale)
        self.negative_scale: float = above_zero("negative_scale", negative_scale)
        self.threshold: float = finite("threshold", threshold)
        self.epsilon: float = finite("epsilon", epsilon)
        self.mining: bool = mining

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        if self.mining:
            positives, negatives = self.mined_pairs(scores, positives, negatives)
        right = -self.positive_scale * (scores - self.threshold)
        wrong = self.negative_scale * (scores - self.threshold)
        return (
            softplus(masked_logsumexp(right, positives)) / self.positive_scale
            + softplus(masked_logsumexp(wrong, negatives)) / self.negative_scale
        )

    def mined_pairs(
        self, scores: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select the pairs that mining keeps.

        Args and shapes are those of `pair_loss`.

        Returns:
            Two boolean tensors `[A, G]`: the kept positives and the kept negatives.
        """
        # An anchor that lacks one kind of pair keeps none of the other.
        least = masked_min(scores, positives, empty=float("inf"))
        most = masked_max(scores, negatives, empty=-float("inf"))
        # "Not at least" and not "less than": a NaN is kept, so that it comes to light.
        easy = scores >= ops.expand_dims(most + self.epsilon, 1)
        far = scores <= ops.expand_dims(least - self.epsilon, 1)
        return (
            ops.logical_and(positives, ops.logical_not(easy)),
            ops.logical_and(negatives, ops.logical_not(far)),
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "positive_scale": self.positive_scale,
            "negative_scale": self.negative_scale,
            "threshold": self.threshold,
            "epsilon": self.epsilon,
            "mining": self.mining,
        }
