"""Compute the FastAP loss: average precision from histograms."""

from typing import Any

from keras import ops

from tfdml._core.arguments import whole
from tfdml._core.tensors import Tensor, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._pair_histograms import pair_histograms


class FastAPLoss(PairLoss):
    """FastAP loss: 1 - average precision, over ranks rounded to histogram bins.

    The squared distances of an anchor to its positives and to all items, 0 to 4 at
    unit length, are counted in histograms h+ and h with L + 1 nodes; a distance between
    two nodes is shared between them. With H+ and H the cumulative histograms, from near
    to far, and N+ the number of positives

        L_a = 1 - 1/N+ sum over l of h+_l H+_l / H_l

    and the loss is the mean over the anchors that have positives. The others add 0. An
    anchor without negatives has exactly the loss 0.

    O(B^2) operations and B x L memory besides the matrix.

    Args:
        num_bins: L, at least 1; 10 in the paper's code. Items in one bin count as
            tied. More bins approximate the average precision better, but fewer pairs
            have a gradient.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `num_bins` is out of range.

    Example:
        >>> loss = FastAPLoss(num_bins=2)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (1 - 1/2 + 1 - 1/2) / 2
        0.5

    Reference:
        Cakir, He, Xia, Kulis and Sclaroff, Deep Metric Learning to Rank, CVPR 2019,
        Eqs. 5 to 8.
    """

    def __init__(self, num_bins: int = 10, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_bins: int = whole("num_bins", num_bins)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        # D = 2 - 2 S: the nodes are those of S in reverse order.
        counts = pair_histograms(scores, positives, negatives, self.num_bins)
        counts = ops.flip(counts, axis=2)
        pos = counts[:, 0]
        above = ops.cumsum(counts, axis=2)
        total = above[:, 0] + above[:, 1]
        # 1 - H+ / H = H- / H, which is exactly 0 without negatives.
        is_empty = ops.equal(total, 0)
        neg = ops.where(is_empty, 0, above[:, 1] / ops.where(is_empty, 1, total))
        number = count(positives, pos.dtype, axis=1)
        values = ops.sum(pos * neg, axis=1) / ops.maximum(number, 1)
        values = scale_to_mean(values, count(number > 0, values.dtype))
        return ops.cast(values, scores.dtype)
