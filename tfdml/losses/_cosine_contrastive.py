"""Compute the contrastive loss on cosine similarities."""

from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss


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
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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

    def __init__(self, threshold: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not -1 <= threshold <= 1:
            raise ValueError(
                "`threshold` must be a cosine similarity, from -1 to 1. "
                f"Received: threshold={threshold}."
            )
        self.threshold: float = float(threshold)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        costs = ops.where(negatives, ops.relu(scores - self.threshold), 0)
        return ops.sum(ops.where(positives, 1 - scores, costs), axis=1)
