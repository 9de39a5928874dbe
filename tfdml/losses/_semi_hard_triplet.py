"""Compute the triplet loss with semi-hard negatives."""

from typing import Any

from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._costs import scale_to_mean, weighted_hinges
from tfdml.losses._distance_base import _DistanceLoss
from tfdml.losses._semi_hard_weights import semi_hard_weights


class SemiHardTripletLoss(_DistanceLoss):
    """Triplet loss of each positive pair with its semi-hard negative.

    The negative n of a pair (a, p) is the nearest with D_an > D_ap, or the farthest
    negative if there is none. Over the P positive pairs, ordered:

        L = 1/P sum max(0, D_ap - D_an + margin)

    This is the rule of `tf.contrib` and tensorflow-addons. Other libraries give the
    same name to the rule of `SemiHardWindowTripletLoss`.

    A pair without a negative adds 0, and a batch without positives has the loss 0.
    Negatives at equal distances share the gradient. The loss is discontinuous where
    D_an = D_ap, as for duplicates, and depends on rounding there.

    Args:
        margin: By how much the negative must be farther, at least 0.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SemiHardTripletLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 1) / 2
        0.5

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face
        Recognition and Clustering, CVPR 2015, section 3.2. The fallback to the
        farthest negative is TensorFlow's.
    """

    def __init__(self, margin: float = 1.0, **kwargs: Any) -> None:
        super().__init__(margin, **kwargs)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        weights = semi_hard_weights(scores, positives, negatives, self.margin)
        hinges, _ = weighted_hinges(scores, positives, weights, self.margin)
        return scale_to_mean(hinges, count(positives, scores.dtype))
