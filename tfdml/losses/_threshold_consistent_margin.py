"""Add the threshold-consistent margin to a loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, within
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST_WEIGHT
from tfdml.messages import shown
from tfdml.ops import cosine_similarities, label_masks


class ThresholdConsistentMarginLoss(MetricLoss):
    """A loss, plus a margin that lets one threshold suit all classes (TCM).

    A loss for ranking leaves some classes spread and others tight, so a threshold that
    suits one class accepts too much or too little of another. With S the cosine
    similarity, over the pairs of the batch,

        L = loss
            + l+ mean over positive pairs with S <= m+ of (m+ - S)
            + l- mean over negative pairs with S >= m- of (S - m-)

    Only hard pairs count: positives below m+ and negatives above m-, whose means are
    not thinned out by the others. A batch without such pairs adds nothing.
    `tfdml.metrics.opis` measures what it is for.

    Args:
        loss: A loss of `tfdml.losses` over class ids and embeddings, whose own
            `reduction` and `dtype` are not used. `None`: the margin alone, for a
            second output of embeddings beside a loss on proxies.
        positive_margin: m+, a cosine similarity.
        negative_margin: m-, a cosine similarity.
        positive_weight: l+, from 0 to 1e6.
        negative_weight: l-, from 0 to 1e6.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        TypeError: `loss` is no such loss.
        ValueError: An argument is out of range.

    Example:
        >>> loss = ThresholdConsistentMarginLoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # 0.9 - 0 + 1 - 0.5
        1.4

    Reference:
        Zhang et al., Threshold-Consistent Margin Loss for Open-World Deep Metric
        Learning, ICLR 2024.
    """

    def __init__(
        self,
        loss: MetricLoss | None = None,
        *,
        positive_margin: float = 0.9,
        negative_margin: float = 0.5,
        positive_weight: float = 1.0,
        negative_weight: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.positive_margin: float = within("positive_margin", positive_margin, -1, 1)
        self.negative_margin: float = within("negative_margin", negative_margin, -1, 1)
        self.positive_weight: float = at_least_zero(
            "positive_weight", positive_weight, LARGEST_WEIGHT
        )
        self.negative_weight: float = at_least_zero(
            "negative_weight", negative_weight, LARGEST_WEIGHT
        )
        # A loss with a check of its own takes something else.
        if loss is not None and (
            not isinstance(loss, MetricLoss)
            or type(loss).checked is not MetricLoss.checked
        ):
            raise TypeError(
                "`loss` must be a loss of tfdml.losses over class ids and embeddings, "
                f"or None. Received: {shown(loss)}."
            )
        self.loss = loss
        self.needs_positives = loss is None or loss.needs_positives

    @property
    def compares_lengths(self) -> bool:
        """Whether the lengths of embeddings count for the loss."""
        return self.loss is not None and self.loss.compares_lengths

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        scores = at_least_float32(cosine_similarities(embeddings, embeddings))
        positives, negatives = label_masks(labels)
        values = self.positive_weight * _mean_of_hard(
            self.positive_margin - scores, positives
        )
        values = values + self.negative_weight * _mean_of_hard(
            scores - self.negative_margin, negatives
        )
        values = ops.cast(values, embeddings.dtype)
        return (
            values if self.loss is None else values + self.loss.call(labels, embeddings)
        )


def _mean_of_hard(costs: Tensor, pairs: Tensor) -> Tensor:
    """Average the costs of at least 0 of some pairs: the share of each anchor."""
    hard = ops.logical_and(pairs, costs >= 0)
    sums = ops.sum(ops.where(hard, costs, 0), axis=1)
    return scale_to_mean(sums, count(hard, sums.dtype))
