"""Compute the lifted structure loss on cosine similarities."""

from typing import Any

from tfdml._core.arguments import above_zero, finite
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._generalized_lifted_structure import lifted
from tfdml.ops import masked_logsumexp


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
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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
        *,
        positive_scale: float = 1.0,
        negative_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.threshold: float = finite("threshold", threshold)
        self.positive_scale: float = above_zero("positive_scale", positive_scale)
        self.negative_scale: float = above_zero("negative_scale", negative_scale)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        pos = self.positive_scale * (self.threshold - scores)
        neg = self.negative_scale * scores
        return lifted(
            masked_logsumexp(pos, positives) / self.positive_scale,
            masked_logsumexp(neg, negatives) / self.negative_scale,
            positives,
            negatives,
        )
