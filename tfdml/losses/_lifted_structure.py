"""Compute the lifted structure loss of a batch of positive pairs."""

from typing import Any

from keras import ops

from tfdml._core.arguments import above_zero, boolean
from tfdml._core.tensors import Tensor, count
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST
from tfdml.ops import (
    euclidean_distances,
    label_masks,
    masked_logsumexp,
    softplus,
    unit_rows,
)


class LiftedStructureLoss(MetricLoss):
    """Lifted structure loss: each positive pair against the negatives of both items.

    With D the Euclidean distance and m a margin, a positive pair (i, j) has

        J_ij = D_ij + log(sum over negatives k of i of e^(m - D_ik)
                          + sum over negatives l of j of e^(m - D_jl))

    and the loss is 1 / (2 |P|) sum over the unordered positive pairs P of
    max(0, J_ij)^2. It is computed from one log-sum-exp r_i per row,
    J_ij = D_ij + log(e^r_i + e^r_j): O(B^2), where published implementations list all
    negatives of all pairs.

    The value of an anchor is the sum over the pairs that it is in, scaled so that the
    mean over the batch is the loss. An anchor without positives adds 0, and a batch of
    one class has the loss 0. The negatives of both ends enter one value, so the loss
    compares a batch with itself.

    The paper does not normalize embeddings (`normalize=False`); by default they are
    compared as unit vectors, whose distances are from 0 to 2. The authors' code divides
    0 by 0 for equal positives; here the gradient at a distance of 0 is 0.

    Args:
        margin: m, above 0.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `margin` is out of range.

    Example:
        >>> loss = LiftedStructureLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (log(2 / e))^2 is cut to 0
        0.0

    Reference:
        Song, Xiang, Jegelka and Savarese, Deep Metric Learning via Lifted Structured
        Feature Embedding, CVPR 2016, Eq. 4.
    """

    needs_positives = True

    def __init__(
        self, margin: float = 1.0, *, normalize: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.margin: float = above_zero("margin", margin, LARGEST)
        self.normalize: bool = boolean("normalize", normalize)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        positives, negatives = label_masks(labels)
        if self.normalize:
            embeddings = unit_rows(embeddings)
        distances = euclidean_distances(embeddings, embeddings)
        # Items of one class have the same negatives: both ends of a pair or neither.
        has_negative = ops.any(negatives, axis=1)
        logits = masked_logsumexp(-distances, negatives)
        logits = ops.where(has_negative, logits, 0)
        pairs = ops.logical_and(positives, ops.expand_dims(has_negative, 1))
        row, column = ops.expand_dims(logits, 1), ops.expand_dims(logits, 0)
        lifted = distances + row + softplus(column - row)  # log(e^r + e^c)
        lifted = ops.relu(self.margin + lifted)  # last: a large one hides the digits
        values = ops.sum(ops.where(pairs, ops.square(lifted), 0), axis=1)
        # Each pair is counted from both ends: 1 / (2 |P|) sum_P = 1 / (4 |P|) of it.
        return scale_to_mean(values / 2, count(pairs, values.dtype))
