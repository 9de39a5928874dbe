"""Compute the generalized lifted structure loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import above_zero, boolean
from tfdml._core.tensors import Tensor, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST
from tfdml.ops import euclidean_distances, masked_logsumexp, unit_rows


class GeneralizedLiftedStructureLoss(PairLoss):
    """Generalized lifted structure loss: all positives against all negatives.

    With D the Euclidean distance and m a margin, the loss of an anchor is

        max(0, log(sum over positives of e^D) + log(sum over negatives of e^(m - D)))

    and the loss of the batch is the mean over the anchors that have positives and
    negatives. Others add 0. (The value of an anchor is scaled by all anchors / these
    anchors, so that the mean over the batch is that mean.)

    By default embeddings are compared as unit vectors. The paper does not normalize
    them, and adds an L2 term on their length to the loss.

    Args:
        margin: m, above 0.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> loss = GeneralizedLiftedStructureLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (2 + 1 and 2 + 1 - 2) / 2
        2.0

    Reference:
        Hermans, Beyer and Leibe, In Defense of the Triplet Loss for Person
        Re-Identification, arXiv 2017, Eq. 7.
    """

    def __init__(
        self, margin: float = 1.0, *, normalize: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.margin: float = above_zero("margin", margin, LARGEST)
        self.normalize: bool = boolean("normalize", normalize)

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute Euclidean distances `[A, G]`."""
        if self.normalize:
            anchors, gallery = unit_rows(anchors), unit_rows(gallery)
        return euclidean_distances(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor from distances. See `PairLoss.pair_loss`."""
        return lifted(
            masked_logsumexp(scores, positives),
            self.margin + masked_logsumexp(-scores, negatives),
            positives,
            negatives,
        )


def lifted(pos: Tensor, neg: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Average max(0, pos + neg) over the anchors that have positives and negatives."""
    is_complete = ops.logical_and(
        ops.any(positives, axis=1), ops.any(negatives, axis=1)
    )
    values = ops.where(is_complete, pos, 0) + ops.where(is_complete, neg, 0)
    return scale_to_mean(ops.relu(values), count(is_complete, values.dtype))
