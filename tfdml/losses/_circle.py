"""Compute the circle loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import fraction
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import scale_of_exponents
from tfdml.ops import masked_logsumexp, softplus


class CircleLoss(PairLoss):
    """Circle loss: a softmax of all pairs, each weighted by its distance to an optimum.

    With S the cosine similarity, gamma a scale and m a margin, the loss of an anchor is

        log(1 + sum over negatives n of e^(gamma a_n (S_n - m))
                * sum over positives p of e^(-gamma a_p (S_p - (1 - m))))

        a_n = max(0, S_n + m),    a_p = max(0, 1 + m - S_p)

    where a_n and a_p have no gradient: they scale the gradient of a pair by its
    distance from the optimum. The loss of the batch is the mean over its anchors. An
    anchor without positives or without negatives adds 0.

    `keras.losses.Circle` has the same value, but it differentiates a_n and a_p too,
    merges labels above 2^24 (above 256 in bfloat16) and needs unit vectors.

    Args:
        scale: gamma, from 1e-4 to 1e4. 80 in the paper for image retrieval.
        margin: m, at least 0 and below 1. 0.4 in the paper for image retrieval.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `scale` or `margin` is out of range.

    Example:
        >>> loss = CircleLoss(scale=1.0, margin=0.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # log(1 + e^2), log(1 + e)
        1.1467

    Reference:
        Sun et al., Circle Loss: A Unified Perspective of Pair Similarity Optimization,
        CVPR 2020, Eqs. 6 and 8.
    """

    def __init__(
        self, scale: float = 80.0, *, margin: float = 0.4, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = scale_of_exponents("scale", scale)
        self.margin: float = fraction("margin", margin)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        fixed = ops.stop_gradient(scores)
        pos = ops.relu(1 + self.margin - fixed) * (1 - self.margin - scores)
        neg = ops.relu(fixed + self.margin) * (scores - self.margin)
        pos = masked_logsumexp(self.scale * pos, positives)
        neg = masked_logsumexp(self.scale * neg, negatives)
        return softplus(pos + neg)
