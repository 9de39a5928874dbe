"""Compute the lifted structure loss on cosine similarities."""

from typing import Any

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._generalized_lifted_structure import lifted
from tfdml.losses._ranges import scale_of_exponents, threshold_of_scores
from tfdml.ops import masked_logsumexp


class CosineLiftedStructureLoss(PairLoss):
    """Lifted structure loss on cosine similarity, as General Pair Weighting states it.

    With S the cosine similarity, the loss of an anchor is

        max(0, (1 / alpha) log(sum over positives of e^(alpha (lambda - S)))
               + (1 / beta) log(sum over negatives of e^(beta S)))

    and the loss of the batch is the mean over the anchors that have positives and
    negatives. Others add 0, as in `GeneralizedLiftedStructureLoss`.

    Args:
        threshold: lambda, a similarity.
        positive_scale: alpha, from 1e-4 to 1e4. 1 in the paper.
        negative_scale: beta, from 1e-4 to 1e4. 1 in the paper.
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
        self.threshold: float = threshold_of_scores("threshold", threshold)
        self.positive_scale: float = scale_of_exponents(
            "positive_scale", positive_scale
        )
        self.negative_scale: float = scale_of_exponents(
            "negative_scale", negative_scale
        )

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        pos = masked_logsumexp(-self.positive_scale * scores, positives)
        neg = masked_logsumexp(self.negative_scale * scores, negatives)
        return lifted(
            pos / self.positive_scale + self.threshold,
            neg / self.negative_scale,
            positives,
            negatives,
        )
