"""Compute the multi-similarity loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import boolean
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import scale_of_exponents, threshold_of_scores
from tfdml.ops import masked_logsumexp, masked_max, masked_min, softplus


class MultiSimilarityLoss(PairLoss):
    """Multi-similarity loss: weights each pair by its own and relative similarities.

    With S the cosine similarity, the loss of an anchor is

        (1 / alpha) log(1 + sum over positives of e^(-alpha (S - lambda)))
        + (1 / beta) log(1 + sum over negatives of e^(beta (S - lambda)))

    where mining keeps the negatives with S > (least similar positive) - epsilon and
    the positives with S < (most similar negative) + epsilon.

    With mining, an anchor without positives or without negatives keeps no pair and
    adds 0. It still counts in the mean over the batch, as in the paper. Without mining,
    such an anchor adds the term that it has. Duplicates of the anchor are positives
    like any other; the authors' code excludes every positive with S > 1 - 1e-5, in
    order to exclude the anchor itself.

    The paper has beta = 50 and lambda = 1, the authors' code beta = 40 and
    lambda = 0.5. The defaults are the paper's scales and the code's threshold: with
    lambda = 1, the terms of negatives are negligible compared with those of positives.

    Args:
        positive_scale: alpha, from 1e-4 to 1e4.
        negative_scale: beta, from 1e-4 to 1e4.
        threshold: lambda, a similarity.
        epsilon: By how much a pair may be easier than the hardest pair of the opposite
            kind and still be kept. A larger value keeps more pairs.
        mining: Whether only the kept pairs count.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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
        *,
        negative_scale: float = 50.0,
        threshold: float = 0.5,
        epsilon: float = 0.1,
        mining: bool = True,
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
        self.epsilon: float = threshold_of_scores("epsilon", epsilon)
        self.mining: bool = boolean("mining", mining)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        if self.mining:
            positives, negatives = self.mined_pairs(scores, positives, negatives)
        pos = masked_logsumexp(-self.positive_scale * scores, positives)
        neg = masked_logsumexp(self.negative_scale * scores, negatives)
        # A large threshold hides the digits of scores that it is taken from.
        pos = softplus(pos + self.positive_scale * self.threshold)
        neg = softplus(neg - self.negative_scale * self.threshold)
        return pos / self.positive_scale + neg / self.negative_scale

    def mined_pairs(
        self, scores: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select the pairs that mining keeps.

        Args and shapes are those of `pair_loss`.

        Returns:
            Two boolean tensors `[A, G]`: the kept positives and the kept negatives.
        """
        # An anchor without positives keeps no negatives, and conversely.
        least = masked_min(scores, positives, empty=float("inf"))
        most = masked_max(scores, negatives, empty=-float("inf"))
        # "Not at least" instead of "less than": a NaN is kept, so that it shows.
        easy = scores >= ops.expand_dims(most + self.epsilon, 1)
        far = scores <= ops.expand_dims(least - self.epsilon, 1)
        return (
            ops.logical_and(positives, ops.logical_not(easy)),
            ops.logical_and(negatives, ops.logical_not(far)),
        )
