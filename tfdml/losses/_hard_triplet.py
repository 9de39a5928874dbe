"""Compute the triplet loss of the hardest triplet of each anchor."""

from typing import Any

from keras import ops

from tfdml._core.arguments import boolean
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._distance_base import _DistanceLoss
from tfdml.ops import masked_max, masked_min, softplus


class HardTripletLoss(_DistanceLoss):
    """Triplet loss of the farthest positive and the nearest negative of each anchor.

    Over the A anchors that have both:

        L = 1/A sum max(0, max_p D_ap - min_n D_an + margin)

    and with `soft=True` log(1 + exp(.)) instead of max(0, .), whose gradient is
    never 0; the paper then sets the margin to 0. Anchors without a positive or without
    a negative add 0 and do not count. On ties the gradient is shared.

    Args:
        margin: By how much the negative must be farther, at least 0.
        soft: Whether the hinge is replaced by the soft plus.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first. The paper does
            not, and uses `"euclidean"`.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = HardTripletLoss(margin=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 0.5) / 2
        0.25

    Reference:
        Hermans, Beyer and Leibe, In Defense of the Triplet Loss for Person
        Re-Identification, arXiv 2017, Eq. 5.
    """

    def __init__(
        self, margin: float = 0.2, *, soft: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(margin, **kwargs)
        self.soft: bool = boolean("soft", soft)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        losses, is_complete = self.anchor_losses(scores, positives, negatives)
        return scale_to_mean(losses, count(is_complete, losses.dtype))

    def anchor_losses(
        self, scores: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of each anchor, and whether it has both kinds of pairs.

        Args and shapes are those of `pair_loss`; both results are `[A]`.
        """
        scores = at_least_float32(scores)
        is_complete = ops.logical_and(ops.any(positives, 1), ops.any(negatives, 1))
        gap = masked_max(scores, positives) - masked_min(scores, negatives)
        losses = (softplus if self.soft else ops.relu)(gap + self.margin)
        return ops.where(is_complete, losses, ops.zeros_like(losses)), is_complete
