"""Compute the triplet loss over all semi-hard triplets."""

from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._costs import scale_to_mean, weighted_hinges
from tfdml.losses._distance_base import _DistanceLoss
from tfdml.ops import hinge_weights


class SemiHardWindowTripletLoss(_DistanceLoss):
    """Triplet loss over all semi-hard triplets, those inside the margin.

    Over the T triplets with D_ap < D_an < D_ap + margin:

        L = 1/T sum (D_ap - D_an + margin)

    A batch without such triplets has the loss 0. The loss is discontinuous where
    D_an = D_ap, as for duplicates, and depends on rounding there.

    Args:
        margin: Width of the window, at least 0.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SemiHardWindowTripletLoss(margin=3.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # 2 - 4 + 3; the other ties
        1.0

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face
        Recognition and Clustering, CVPR 2015, Eq. 4 and section 3.2.
    """

    def __init__(self, margin: float = 0.2, **kwargs: Any) -> None:
        super().__init__(margin, **kwargs)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        weights = hinge_weights(scores, positives, negatives, self.margin, window=True)
        hinges, active = weighted_hinges(scores, positives, weights, self.margin)
        return scale_to_mean(hinges, ops.sum(active))
