"""Compute the loss of an ensemble of attention masks: ABE."""

import itertools
from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, whole
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST_OF_UNIT_ROWS, LARGEST_WEIGHT
from tfdml.messages import shown
from tfdml.ops import label_masks, squared_distances, unit_rows


class ABELoss(MetricLoss):
    """Attention-based ensemble: a contrastive loss of each learner, and a divergence.

    The columns of the embedding are divided evenly among M learners, as `JoinedHeads`
    does. With D the Euclidean distance of the unit rows of a pair in one learner, and
    D_pq(i) that of the rows of two learners p and q for one image i,

        L = sum over learners of 1/2 ( mean over positive pairs of D^2
                                       + mean over negative pairs of max(0, m_c - D^2) )
            + lambda mean over images i of sum_{p<q} max(0, m_div - D_pq(i)^2)

    The last term keeps learners from attending to the same. Means are over all pairs of
    the batch. A batch without positive pairs has no first term, one without negative
    pairs no second.

    Args:
        heads: M, at least 1. 8 in the paper's best results.
        margin: m_c, from 0 to 10, a squared distance.
        divergence: lambda, from 0 to 1e6.
        divergence_margin: m_div, from 0 to 10, a squared distance.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range, or the embeddings cannot be divided.

    Example:
        >>> loss = ABELoss(2)
        >>> rows = [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, -1.0, 0.0]]
        >>> float(loss([7, 7], rows))  # (2 + 4) / 2 + (1 + 0) / 2
        3.5

    Reference:
        Kim, Goyal, Chawla, Lee and Kwon, Attention-based Ensemble for Deep Metric
        Learning, ECCV 2018. The paper draws as many positive as negative pairs.
    """

    needs_positives = True

    def __init__(
        self,
        heads: int,
        *,
        margin: float = 1.0,
        divergence: float = 1.0,
        divergence_margin: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.heads: int = whole("heads", heads)
        self.margin: float = at_least_zero("margin", margin, LARGEST_OF_UNIT_ROWS)
        self.divergence: float = at_least_zero("divergence", divergence, LARGEST_WEIGHT)
        self.divergence_margin: float = at_least_zero(
            "divergence_margin", divergence_margin, LARGEST_OF_UNIT_ROWS
        )

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check a batch and the dimension. See `MetricLoss.checked`."""
        labels, embeddings = super().checked(y_true, y_pred)
        dimension = embeddings.shape[1]
        if dimension is not None and dimension % self.heads:
            raise ValueError(
                "`heads` must divide the dimension of the embeddings, "
                f"{dimension}. Received: heads={shown(self.heads)}."
            )
        return labels, embeddings

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        positives, negatives = label_masks(labels)
        rows = [
            at_least_float32(unit_rows(part))
            for part in ops.split(embeddings, self.heads, axis=1)
        ]
        near: Tensor = 0.0
        far: Tensor = 0.0
        for part in rows:
            squared = squared_distances(part, part)
            near = near + ops.where(positives, squared, 0)
            far = far + ops.where(negatives, ops.relu(self.margin - squared), 0)
        kind = rows[0].dtype
        values = scale_to_mean(ops.sum(near, axis=1), count(positives, kind)) / 2
        values += scale_to_mean(ops.sum(far, axis=1), count(negatives, kind)) / 2
        for one, other in itertools.combinations(rows, 2):
            apart = ops.sum(ops.square(one - other), axis=1)
            values += self.divergence * ops.relu(self.divergence_margin - apart)
        return ops.cast(values, embeddings.dtype)
