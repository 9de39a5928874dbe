"""Compute the ranked list loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import (
    LARGEST_OF_UNIT_ROWS,
    LARGEST_WEIGHT,
    scale_of_exponents,
)
from tfdml.ops import euclidean_distances, masked_logsumexp, masked_mean, unit_rows


class RankedListLoss(PairLoss):
    """Ranked list loss: positives within a ball, negatives beyond its margin.

    With D the Euclidean distance of unit rows, of an anchor's positives those count
    that are outside a ball, P* = {D > alpha - m}, and of its negatives those that are
    too near, N* = {D < alpha}:

        L_P = 1/|P*| sum_P* (D - (alpha - m))
        L_N = sum_N* w (alpha - D) / sum_N* w,    w = exp(T (alpha - D))
        L = L_P + lambda L_N

    Positives inside the ball are left as they are, so that a class keeps its structure.
    No gradient passes through w. An anchor without pairs in P* or in N* lacks that
    term; one without positives still pushes its negatives away.

    The paper's RLL-H is this loss on the last layer of embeddings, RLL-(L,M,H) on three
    layers that are joined. In the authors' code a distance moves the anchor alone; here
    it moves both of its ends, as every loss of this library.

    Args:
        alpha: Distance that negatives should have at least, from 0 to 10.
        margin: m, by how much nearer positives should be, from 0 to 10.
        scale: T, from 1e-4 to 1e4: how much more the nearest negatives weigh.
        negative_weight: lambda, from 0 to 1e6.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = RankedListLoss(alpha=1.2, margin=0.4)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # 2 (sqrt(2) - 0.8) / 3
        0.409

    Reference:
        Wang, Hua, Kodirov, Hu, Garnier and Robertson, Ranked List Loss for Deep Metric
        Learning, CVPR 2019. The formula is that of the authors' code.
    """

    def __init__(
        self,
        alpha: float = 1.2,
        *,
        margin: float = 0.4,
        scale: float = 10.0,
        negative_weight: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha: float = at_least_zero("alpha", alpha, LARGEST_OF_UNIT_ROWS)
        self.margin: float = at_least_zero("margin", margin, LARGEST_OF_UNIT_ROWS)
        self.scale: float = scale_of_exponents("scale", scale)
        self.negative_weight: float = at_least_zero(
            "negative_weight", negative_weight, LARGEST_WEIGHT
        )

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute Euclidean distances of unit rows, `[A, G]`."""
        return euclidean_distances(unit_rows(anchors), unit_rows(gallery))

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute L of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        outside = scores - (self.alpha - self.margin)
        # "Not at most" instead of "above": a NaN counts, so that it shows.
        far = ops.logical_and(positives, ops.logical_not(outside <= 0))
        inside = self.alpha - scores
        near = ops.logical_and(negatives, ops.logical_not(inside <= 0))
        logits = self.scale * ops.stop_gradient(inside)
        total = ops.expand_dims(masked_logsumexp(logits, near), 1)
        weights = ops.exp(ops.where(near, logits - total, -float("inf")))
        weights = ops.stop_gradient(weights)
        pushed = ops.sum(weights * ops.where(near, inside, 0), axis=1)
        return masked_mean(outside, far) + self.negative_weight * pushed
