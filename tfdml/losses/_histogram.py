"""Compute the histogram loss."""

from typing import Any

from keras import ops

from tfdml._core.arguments import within
from tfdml._core.tensors import Tensor, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._pair_histograms import pair_histograms


class HistogramLoss(PairLoss):
    """Histogram loss: how often a negative pair is more similar than a positive one.

    The similarities of the positive and of the negative pairs of the batch are counted
    in histograms h+ and h- with nodes t_1 = -1, t_2 = -1 + Delta, ..., t_R = 1. A
    similarity between two nodes is shared between them by its distance from each. The
    loss estimates the probability that a random negative pair is more similar than
    a random positive pair:

        L = sum over r of h-_r (sum over q <= r of h+_q)

    from 0 to 1; Delta is its only parameter. The value of an anchor is the share of its
    positive pairs in L, times the number of anchors, so that the mean over the batch is
    L. An anchor without positives adds 0; a batch without positive or without negative
    pairs has the loss 0.

    Each similarity is added to two bins: O(B^2 + R) operations, and B x R memory
    besides the matrix. The gradient of a similarity exactly on a node, such as that of
    equal embeddings, is that of the interval to its right (at 1, to its left).

    Args:
        bin_width: Delta, from 1e-4 to 1; 2 must be a multiple of it. 0.01 to
            0.04 in the paper; a small batch needs wider bins.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        bin_width = within("bin_width", bin_width, 1e-4, 1)
        self._intervals: int = round(2 / bin_width)
        if abs(self._intervals * bin_width - 2) > 1e-6:
            raise ValueError(
                "`bin_width` must divide 2, so that there are nodes at -1 and 1. "
                f"Received: bin_width={bin_width}."
            )
        self.bin_width: float = bin_width

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        counts = pair_histograms(scores, positives, negatives, self._intervals)
        pos, neg = counts[:, 0], ops.sum(counts[:, 1], axis=0)
        # The share of negatives at a node or above it.
        above = ops.flip(ops.cumsum(ops.flip(neg, axis=0)), axis=0)
        above = above / ops.maximum(count(negatives, above.dtype), 1)
        values = ops.sum(pos * above, axis=1)
        values = scale_to_mean(values, count(positives, values.dtype))
        return ops.cast(values, scores.dtype)
