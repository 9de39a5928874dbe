"""Compute the binomial deviance loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import boolean
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import scale_of_exponents, threshold_of_scores
from tfdml.ops import masked_mean, softplus


class BinomialDevianceLoss(PairLoss):
    """Binomial deviance loss: a smooth hinge on the similarity of each pair.

    With S the cosine similarity, the loss of an anchor i that has P_i positives and
    N_i negatives is

        (1 / P_i) sum over positives of log(1 + e^(alpha (lambda - S)))
        + (1 / N_i) sum over negatives of log(1 + e^(beta (S - lambda)))

    An anchor without positives has no first term and one without negatives no second
    term. With `per_anchor=False` the means are taken over all positive and all negative
    pairs of the batch, as by Yi et al., whose cost of a negative is beta / alpha.

    Args:
        positive_scale: alpha, from 1e-4 to 1e4. 2 in the papers.
        negative_scale: beta, from 1e-4 to 1e4. 40 to 50 in the papers.
        threshold: lambda, the similarity that separates positives from negatives.
        per_anchor: Whether the pairs of each anchor are averaged (Wang et al.) instead
            of the pairs of the batch (Yi et al.).
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: A scale or `threshold` is out of range.

    Example:
        >>> loss = BinomialDevianceLoss(positive_scale=2, threshold=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7], embeddings)), 4)  # log(1 + e^(2 * 0.5))
        1.3133

    Reference:
        Yi, Lei and Li, Deep Metric Learning for Practical Person Re-Identification,
        arXiv 2014; per anchor as in Wang et al., Multi-Similarity Loss with General
        Pair Weighting for Deep Metric Learning, CVPR 2019.
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        *,
        negative_scale: float = 50.0,
        threshold: float = 0.5,
        per_anchor: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.positive_scale: float = scale_of_exponents(
            "positive_scale", positive_scale
        )
        self.negative_scale: float = scale_of_exponents(
            "negative_scale", negative_scale
        )
        self.threshold: float = threshold_of_scores("threshold", threshold)
        self.per_anchor: bool = boolean("per_anchor", per_anchor)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        # A pair is positive or negative: one softplus per pair, not two.
        costs = softplus(
            ops.where(
                positives,
                self.positive_scale * (self.threshold - scores),
                self.negative_scale * (scores - self.threshold),
            )
        )
        if self.per_anchor:
            return masked_mean(costs, positives) + masked_mean(costs, negatives)
        costs = at_least_float32(costs)
        pos = ops.sum(ops.where(positives, costs, 0), axis=1)
        neg = ops.sum(ops.where(negatives, costs, 0), axis=1)
        values = scale_to_mean(pos, count(positives, pos.dtype))
        values = values + scale_to_mean(neg, count(negatives, neg.dtype))
        return ops.cast(values, scores.dtype)
