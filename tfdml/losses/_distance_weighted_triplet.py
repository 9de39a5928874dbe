"""Compute the triplet loss over distance-weighted negatives."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._costs import scale_to_mean, weighted_hinges
from tfdml.losses._distance_base import Distance, checked_distance, distances
from tfdml.losses._distance_weighted_base import _DistanceWeightedLoss, count_pairs
from tfdml.losses._ranges import LARGEST
from tfdml.ops import hinge_weights


class DistanceWeightedTripletLoss(_DistanceWeightedLoss):
    """Triplet loss in expectation over distance-weighted negatives.

    With q(n | a) the probability of a negative (see `negative_probabilities`), over
    the P positive pairs, ordered, whose anchor has a negative:

        L = 1/P sum_(a,p) sum_n q(n | a) max(0, D_ap - D_an + margin)

    The paper draws one negative for each positive pair; this is the mean of all draws,
    with the same expected gradient and no noise. No gradient passes through q.

    An anchor without positives or without negatives adds 0.

    Args:
        margin: By how much a negative must be farther than a positive, at least 0.
        distance: D of the hinge: `"squared_euclidean"`, `"euclidean"` or `"cosine"`,
            which is 1 - cosine similarity, all of unit rows.
        cutoff: Euclidean distance below which the probability of a negative does not
            grow further; above 0 and below 2.
        nonzero_loss_cutoff: Negatives at this Euclidean distance or farther are not
            drawn. None draws them. An anchor without a nearer negative draws each with
            equal probability.
        dimension: Number of components of an embedding. Needed only where the loss sees
            no embeddings, as when `pair_loss` is called.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = DistanceWeightedTripletLoss(margin=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 0.5) / 2
        0.25

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 2 and section 4.1.
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        distance: Distance = "squared_euclidean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin: float = at_least_zero("margin", margin, LARGEST)
        self.distance: Distance = checked_distance(distance)

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute the distances of unit rows, `[A, G]`."""
        return distances(anchors, gallery, self.distance, normalize=True)

    def expected_loss(
        self,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int | Tensor,
    ) -> Tensor:
        """Compute the share of each anchor, `[A]`."""
        scores = at_least_float32(scores)
        squared = {
            "squared_euclidean": scores,
            "euclidean": ops.square(scores),
            "cosine": 2 * scores,
        }[self.distance]
        shares = self.probabilities(squared, negatives, dimension)
        weights = hinge_weights(
            scores, positives, negatives, self.margin, shares=shares
        )
        hinges, _ = weighted_hinges(scores, positives, weights, self.margin)
        return scale_to_mean(hinges, count_pairs(positives, negatives, scores.dtype))
