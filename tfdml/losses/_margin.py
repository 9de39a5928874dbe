"""Compute the margin loss with a fixed boundary."""

from typing import Any, Literal

from keras import ops

from tfdml._core.arguments import at_least_zero, one_of
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST_OF_UNIT_ROWS
from tfdml.ops import euclidean_distances, unit_rows


class MarginLoss(PairLoss):
    """Margin loss over all pairs, with a fixed boundary between near and far.

    With D the Euclidean distance of unit rows, over the T pairs (i, j), ordered:

        L = 1/T (sum_pos max(0, D_ij - beta + alpha)
                 + sum_neg max(0, alpha + beta - D_ij))

    T is the number of terms above 0 or of all pairs. The paper draws one negative per
    positive by distance, as `DistanceWeightedMarginLoss` does. For learned boundaries
    see `LearnedMarginLoss`.

    A batch without positives still pushes negatives apart, and a batch without
    negatives still pulls positives together. A term exactly at its margin has a zero
    gradient.

    Args:
        alpha: Margin on each side of the boundary, from 0 to 10, a Euclidean
            distance.
        beta: Boundary, from 0 to 10. Unit rows are at most 2 apart, random ones
            sqrt(2).
        average: `"active"`: T counts the terms above 0, as in the authors' code.
            `"valid"`: T counts all pairs.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = MarginLoss(alpha=0.2, beta=1.2)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # sqrt(2) - 1.2 + 0.2
        0.414

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 4.
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

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        near, far = side_hinges(scores, positives, negatives, self.alpha)
        hinges = near + far
        losses = ops.sum(hinges, axis=1)
        terms = count_terms(hinges, positives, negatives, self.average)
        return scale_to_mean(losses, terms)


def side_hinges(
    scores: Tensor, positives: Tensor, negatives: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """Compute the hinges of positives and of negatives, `[A, G]` each."""
    near = ops.where(positives, ops.relu(scores + alpha), 0)
    far = ops.where(negatives, ops.relu(alpha - scores), 0)
    return near, far


def count_terms(
    hinges: Tensor, positives: Tensor, negatives: Tensor, average: str
) -> Tensor:
    """Count the pairs that the loss is averaged over: the active ones or all."""
    if average == "active":
        return count(hinges > 0, hinges.dtype)
    return count(ops.logical_or(positives, negatives), hinges.dtype)
