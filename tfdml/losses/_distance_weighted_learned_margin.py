"""Compute the margin loss with learned boundaries over distance weighted negatives."""

from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor, count
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._distance_weighted_base import check_cutoffs, negative_probabilities
from tfdml.losses._distance_weighted_margin import drawn_hinges
from tfdml.losses._learned_margin import LearnedMarginLoss


class DistanceWeightedLearnedMarginLoss(LearnedMarginLoss):
    """Margin loss of the paper: learned boundaries, distance weighted negatives.

    It is `DistanceWeightedMarginLoss` with the boundary beta_y of the anchor's class y
    instead of beta. With q(n | a) the probability of a negative, P_a the number of
    positives of anchor a, and D the Euclidean distance of unit rows:

        L = 1/T sum_a (sum_p max(0, D_ap - beta_ya + alpha)
                       + P_a sum_n q(n | a) max(0, alpha + beta_ya - D_an)
                       + nu P_a beta_ya)

    T is the expected number of hinges above 0, or with `average="valid"` the number of
    positive pairs. The paper draws one negative for each positive pair; this is the
    mean of all draws. No gradient passes through q.

    The boundaries are weights of the layer `tfdml.layers.ClassBoundaries` at the end of
    the trained model, as for `LearnedMarginLoss`. Labels must be 0 to `num_classes` -
    1; another label makes the loss NaN. An anchor without positives or without
    negatives adds 0, its boundary included.

    Args:
        num_classes: Number of boundaries, as in the layer.
        cutoff: Euclidean distance below which the probability of a negative does not
            grow further; above 0 and below 2.
        nonzero_loss_cutoff: Negatives at this Euclidean distance or farther are not
            drawn. None draws them. An anchor without a nearer negative draws each with
            equal probability.
        alpha: Margin on each side of the boundary, from 0 to 10, a Euclidean
            distance.
        nu: Weight of the boundaries themselves, from 0 to 1e6, which keeps them small.
        average: `"active"`: T counts the hinges above 0, as in the authors' code.
            `"valid"`: T counts the positive pairs.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import keras
        >>> from tfdml.layers import ClassBoundaries
        >>> inputs = keras.Input((8,))
        >>> embeddings = keras.layers.Dense(4)(inputs)
        >>> model = keras.Model(inputs, ClassBoundaries(3)(embeddings))
        >>> model.compile("adam", loss=DistanceWeightedLearnedMarginLoss(3))

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 2, 5 and 6.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        cutoff: float = 0.5,
        nonzero_loss_cutoff: float | None = 1.4,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_cutoffs(cutoff, nonzero_loss_cutoff)
        self.cutoff: float = float(cutoff)
        self.nonzero_loss_cutoff: float | None = nonzero_loss_cutoff

    def compared(
        self,
        distances: Tensor,
        boundaries: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int,
    ) -> Tensor:
        """Compute the share of each anchor, `[B]`. See `LearnedMarginLoss.compared`."""
        shares = negative_probabilities(
            ops.square(distances),
            negatives,
            dimension,
            self.cutoff,
            self.nonzero_loss_cutoff,
        )
        losses, terms = drawn_hinges(
            distances - ops.expand_dims(boundaries, 1),
            positives,
            negatives,
            shares,
            self.alpha,
            self.average,
        )
        pairs = ops.where(
            ops.any(negatives, axis=1), count(positives, distances.dtype, axis=1), 0
        )
        return scale_to_mean(losses + self.nu * pairs * boundaries, terms)
