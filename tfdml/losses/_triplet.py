"""Compute the triplet loss over all triplets."""

from typing import Any, Literal

from keras import ops

from tfdml._core.arguments import one_of
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._costs import scale_to_mean, weighted_hinges
from tfdml.losses._distance_base import _DistanceLoss
from tfdml.ops import hinge_weights


class TripletLoss(_DistanceLoss):
    """Triplet loss over all triplets of the batch.

    With a an anchor, p its positives and n its negatives, over all valid (a, p, n):

        L = 1/T sum max(0, D_ap - D_an + margin)

    T is the number of valid triplets, or of those above 0. This is the expectation of
    the loss under uniform sampling of triplets. No triplet is listed: the count of the
    triplets above 0 that each pair is in gives value and gradient exactly, in O(B^2)
    memory.

    An anchor without positives or without negatives adds 0; a batch without triplets
    has the loss 0. A triplet exactly at the margin adds 0 and has a zero gradient.

    Args:
        margin: By how much a negative must be farther than a positive, at least 0.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first, as in the paper.
        average: `"valid"`: T counts every triplet. `"active"`: T counts those above 0,
            so the gradient does not fade as training goes on.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = TripletLoss(margin=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 0.5) / 2
        0.25

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face
        Recognition and Clustering, CVPR 2015, Eq. 2.
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        average: Literal["valid", "active"] = "valid",
        **kwargs: Any,
    ) -> None:
        super().__init__(margin, **kwargs)
        self.average: Literal["valid", "active"] = one_of(
            "average", average, ("valid", "active")
        )

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        weights = hinge_weights(scores, positives, negatives, self.margin)
        hinges, active = weighted_hinges(scores, positives, weights, self.margin)
        if self.average == "active":
            return scale_to_mean(hinges, ops.sum(active))
        triplets = count(positives, scores.dtype, axis=1)
        triplets = triplets * count(negatives, scores.dtype, axis=1)
        return scale_to_mean(hinges, ops.sum(triplets))
