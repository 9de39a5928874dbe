"""Compute the margin loss over distance-weighted negatives."""

from typing import Any, Literal

from keras import ops

from tfdml._core.arguments import at_least_zero, one_of
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._distance_weighted_base import _DistanceWeightedLoss, count_pairs
from tfdml.losses._margin import side_hinges
from tfdml.losses._ranges import LARGEST_OF_UNIT_ROWS
from tfdml.ops import euclidean_distances, unit_rows


class DistanceWeightedMarginLoss(_DistanceWeightedLoss):
    """Margin loss in expectation over distance-weighted negatives.

    With q(n | a) the probability of a negative (see `negative_probabilities`), P_a the
    number of positives of anchor a, and D the Euclidean distance of unit rows:

        L = 1/T sum_a (sum_p max(0, D_ap - beta + alpha)
                       + P_a sum_n q(n | a) max(0, alpha + beta - D_an))

    T is the expected number of terms above 0, or with `average="valid"` the number of
    positive pairs. The paper draws one negative for each positive pair; this is the
    mean of all draws. (With `"active"` the authors divide each draw's sum by its own
    count; here the two expectations are divided.) No gradient passes through q.

    An anchor without positives or without negatives adds 0.

    Args:
        alpha: Margin on each side of the boundary, from 0 to 10, a Euclidean
            distance.
        beta: Boundary, from 0 to 10.
        average: `"active"` or `"valid"`, see above.
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
        >>> loss = DistanceWeightedMarginLoss(alpha=0.2, beta=1.2)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # sqrt(2) - 1.2 + 0.2
        0.414

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 2 and 4.
    """

    def __init__(
        self,
        alpha: float = 0.2,
        *,
        beta: float = 1.2,
        average: Literal["active", "valid"] = "active",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha: float = at_least_zero("alpha", alpha, LARGEST_OF_UNIT_ROWS)
        self.beta: float = at_least_zero("beta", beta, LARGEST_OF_UNIT_ROWS)
        self.average: Literal["active", "valid"] = one_of(
            "average", average, ("active", "valid")
        )

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute the distance of each pair from the boundary: D - beta, `[A, G]`."""
        return euclidean_distances(unit_rows(anchors), unit_rows(gallery)) - self.beta

    def expected_loss(
        self,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int | Tensor,
    ) -> Tensor:
        """Compute the share of each anchor, `[A]`."""
        scores = at_least_float32(scores)
        squared = ops.square(scores + self.beta)
        shares = self.probabilities(squared, negatives, dimension)
        losses, terms = drawn_hinges(
            scores, positives, negatives, shares, self.alpha, self.average
        )
        return scale_to_mean(losses, terms)


def drawn_hinges(
    scores: Tensor,
    positives: Tensor,
    negatives: Tensor,
    shares: Tensor,
    alpha: float,
    average: str,
) -> tuple[Tensor, Tensor]:
    """Sum the hinges of each anchor's pairs, with one drawn negative per positive.

    Args:
        scores: Distance of each pair from the boundary, `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        shares: Probability of each negative, `[A, G]`.
        alpha: Margin on each side of the boundary.
        average: "active" or "valid".

    Returns:
        The expected sum of each anchor, `[A]`, and what all of them are divided by:
        the expected number of terms above 0, or the number of positive pairs.
    """
    is_complete = ops.logical_and(ops.any(positives, 1), ops.any(negatives, 1))
    positives = ops.logical_and(positives, ops.expand_dims(is_complete, 1))
    draws = ops.expand_dims(count(positives, scores.dtype, axis=1), 1) * shares
    near, far = side_hinges(scores, positives, negatives, alpha)
    if average == "active":
        terms = ops.sum(count(near > 0, scores.dtype, axis=1))
        terms = terms + ops.sum(ops.where(far > 0, draws, 0))
    else:
        terms = count_pairs(positives, negatives, scores.dtype)
    return ops.sum(near + draws * far, axis=1), terms
