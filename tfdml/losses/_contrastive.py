"""Compute the contrastive loss on Euclidean distances."""

from typing import Any

from keras import ops

from tfdml._core.arguments import above_zero, boolean
from tfdml._core.tensors import Tensor, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST
from tfdml.ops import euclidean_distances, unit_rows


class ContrastiveLoss(PairLoss):
    """Contrastive loss: pulls positives together, pushes negatives a margin apart.

    With D the Euclidean distance of two embeddings, for positives and negatives

        g = D^2,    h = max(0, m - D)^2

    and the loss is the mean of both over all ordered pairs of two different items.
    The value of an anchor is the mean over the other items. With
    `separate_means=True` it is the mean of g over the positive pairs plus the mean of
    h over the negative pairs of the batch: then few positives have the same weight as
    many negatives.

    An anchor without positives still pushes its negatives away, and one without
    negatives pulls its positives near. For identical embeddings the gradient is zero.
    The papers do not restrict the length of the embeddings (`normalize=False`); by
    default they are compared as unit vectors, whose distances are from 0 to 2.

    Args:
        margin: m, the distance that negatives should have, above 0. On unit vectors
            below 2.
        separate_means: Whether positive and negative pairs are averaged separately.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> loss = ContrastiveLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (2 + 2 + 1 + 1 + 0 + 0) / 6
        1.0

    Reference:
        Hadsell, Chopra and LeCun, Dimensionality Reduction by Learning an Invariant
        Mapping, CVPR 2006; over all pairs of a batch as in Hong et al., Deep Metric
        Learning via Weighted Contrastive Loss, Eqs. 4 and 5.
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        separate_means: bool = False,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin: float = above_zero("margin", margin, LARGEST)
        self.separate_means: bool = boolean("separate_means", separate_means)
        self.normalize: bool = boolean("normalize", normalize)

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute Euclidean distances `[A, G]`."""
        if self.normalize:
            anchors, gallery = unit_rows(anchors), unit_rows(gallery)
        return euclidean_distances(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor from distances. See `PairLoss.pair_loss`."""
        near = ops.sum(ops.where(positives, ops.square(scores), 0), axis=1)
        far = ops.square(ops.relu(self.margin - scores))
        far = ops.sum(ops.where(negatives, far, 0), axis=1)
        if self.separate_means:
            near = scale_to_mean(near, count(positives, near.dtype))
            return near + scale_to_mean(far, count(negatives, far.dtype))
        pairs = count(ops.logical_or(positives, negatives), near.dtype)
        return scale_to_mean(near + far, pairs)
