"""Histogram loss: the overlap of the similarities of positives and negatives."""

from typing import Any

import keras
from keras import ops

from tfdml.losses._base import PairLoss
from tfdml.ops import Tensor, pair_histograms


@keras.saving.register_keras_serializable(package="tfdml")
class HistogramLoss(PairLoss):
    """Histogram loss: how often a negative pair is more similar than a positive one.

    The similarities of the positive pairs and of the negative pairs of the batch are
    counted in histograms h+ and h- with nodes t_1 = -1, t_2 = -1 + Delta, ..., t_R = 1.
    A similarity between two nodes is shared between them by its distance from each.
    The loss estimates the probability that a random negative pair is more similar than
    a random positive pair:

        L = sum over r of h-_r (sum over q <= r of h+_q)

    from 0 to 1, with no other parameter than Delta. The value of an anchor is the part
    that its positive pairs have in L, times the number of anchors, so that the mean
    over the batch is L. An anchor without positives adds 0; without any positive or
    any negative pair in the batch the loss is 0.

    Each similarity is put into two bins: O(B^2 + R) operations, and B x R memory
    besides the matrix. The gradient of a similarity exactly on a node, such as that of
    equal embeddings, is that of the interval to its right (at 1, to its left).

    Args:
        bin_width: Delta, above 0 and at most 1; 2 must be a multiple of it. 0.01 to
            0.04 in the paper; a small batch needs wider bins.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `bin_width` is out of range or does not divide 2.

    Example:
        >>> loss = HistogramLoss(bin_width=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # positive 0; negatives 0 and 1
        1.0

    Reference:
        Ustinova and Lempitsky, Learning Deep Embeddings with Histogram Loss, NIPS
        2016, Eqs. 1 to 5. (Eq. 1's nodes are meant to start at -1, with r from 0.)
    """

    def __init__(
        self,
        bin_width: float = 0.02,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "histogram_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if not 0 < bin_width <= 1:
            raise ValueError(
                "`bin_width` must be above 0 and at most 1. "
                f"Received: bin_width={bin_width}."
            )
        self._intervals: int = round(2 / bin_width)
        if abs(self._intervals * bin_width - 2) > 1e-6:
            raise ValueError(
                "2 must be a multiple of `bin_width`, so that nodes stand at -1 and 1. "
                f"Received: bin_width={bin_width}."
            )
        self.bin_width: float = float(bin_width)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the part of each anchor in the loss. See `PairLoss.pair_loss`."""
        anchors = ops.shape(scores)[0]
        counts = pair_histograms(scores, positives, negatives, self._intervals)
        right, wrong = counts[:, 0], ops.sum(counts[:, 1], axis=0)
        # The share of negatives at a node or above it.
        above = ops.flip(ops.cumsum(ops.flip(wrong, axis=0)), axis=0)
        above = above / ops.maximum(_number(negatives, above), 1)
        right = right * (
            ops.cast(anchors, right.dtype) / ops.maximum(_number(positives, right), 1)
        )
        return ops.cast(ops.sum(right * above, axis=1), scores.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "bin_width": self.bin_width}


def _number(mask: Tensor, like: Tensor) -> Tensor:
    return ops.cast(ops.sum(ops.cast(mask, "int32")), like.dtype)
