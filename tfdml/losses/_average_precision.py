"""Losses on average precision: FastAP by histograms, Smooth-AP by sigmoids."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero, whole
from tfdml.losses._base import PairLoss
from tfdml.losses._distance_base import at_least_float32, count, mean_over
from tfdml.ops import Tensor, each_positive, next_above, pair_histograms, row_count


@keras.saving.register_keras_serializable(package="tfdml")
class FastAPLoss(PairLoss):
    """FastAP loss: 1 - average precision, over ranks rounded to histogram bins.

    The squared distances of an anchor to its positives and to all items, 0 to 4 at
    unit length, are counted in histograms h+ and h with L + 1 nodes; a distance between
    two nodes is shared between them. With H+ and H the cumulated ones, from near to
    far, and N+ the number of positives

        L_a = 1 - 1/N+ sum over l of h+_l H+_l / H_l

    and the loss is the mean over the anchors that have positives. The others add 0. An
    anchor without negatives has the loss 0, up to no rounding.

    O(B^2) operations and B x L memory besides the matrix.

    Args:
        num_bins: L, at least 1; 10 in the paper's code. Items in one bin count as
            tied, so that more bins come nearer to the average precision, and have
            gradients for fewer pairs.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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

    def __init__(
        self,
        num_bins: int = 10,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "fast_ap_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.num_bins: int = whole("num_bins", num_bins)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        # D = 2 - 2 S: the nodes are those of S, passed from the last to the first.
        counts = pair_histograms(scores, positives, negatives, self.num_bins)
        counts = ops.flip(counts, axis=2)
        right = counts[:, 0]
        above = ops.cumsum(counts, axis=2)
        total = above[:, 0] + above[:, 1]
        # 1 - H+ / H = H- / H, which is exactly 0 without negatives.
        some = total > 0
        wrong = ops.where(some, above[:, 1] / ops.where(some, total, 1), 0)
        found = count(positives, right)
        values = ops.sum(right * wrong, axis=1) / ops.maximum(found, 1)
        return ops.cast(mean_over_ranked(values, found), scores.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "num_bins": self.num_bins}


@keras.saving.register_keras_serializable(package="tfdml")
class SmoothAPLoss(PairLoss):
    """Smooth-AP loss: 1 - average precision, ranks counted by sigmoids.

    With S the cosine similarities of an anchor to its positives P and its negatives N,
    and G(x) = 1 / (1 + e^(-x / tau)):

        L_a = 1 - 1/|P| sum over i in P of R_i / (R_i + sum over n in N of G(S_n - S_i))
        R_i = 1 + sum over j in P, j != i of G(S_j - S_i)

    and the loss is the mean over the anchors that have positives. The others add 0; an
    anchor without negatives has the loss 0.

    The positives are taken one at a time, forward and backward: O(B^2 P) operations
    for P positives an anchor, O(B^2) memory.

    Args:
        temperature: tau, above 0, in units of cosine similarity. The smaller, the
            nearer to the average precision, and the fewer pairs have a gradient.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in; float16 and bfloat16 are widened.

    Raises:
        ValueError: `temperature` is out of range.

    Example:
        >>> loss = SmoothAPLoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> float(loss([7, 7, 9], embeddings))  # (1 - 1/2 + 1 - 1 / 1.5) / 2
        0.4166666567325592

    Reference:
        Brown, Xie, Kalogeiton and Zisserman, Smooth-AP: Smoothing the Path Towards
        Large-Scale Image Retrieval, ECCV 2020, Eqs. 4 to 7.
    """

    def __init__(
        self,
        temperature: float = 0.01,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "smooth_ap_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.temperature: float = above_zero("temperature", temperature)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        wide = at_least_float32(scores)
        found = count(positives, wide)
        sums = _lost_precision(wide, positives, negatives, self.temperature)
        values = sums / ops.maximum(found, 1)
        return ops.cast(mean_over_ranked(values, found), scores.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "temperature": self.temperature}


def mean_over_ranked(values: Tensor, found: Tensor) -> Tensor:
    """Scale values `[A]` so that their mean is that over the anchors with positives."""
    return mean_over(values, ops.sum(ops.cast(found > 0, values.dtype)))


def _lost_precision(
    scores: Tensor, positives: Tensor, negatives: Tensor, temperature: float
) -> Tensor:
    """Sum 1 - precision at the rank of each positive, `[A]`."""

    # JAX traces no branch over a function with a gradient of its own that takes tensors
    # from outside: the masks are an argument, and floats.
    @ops.custom_gradient
    def lost(scores: Tensor, kinds: Tensor) -> Any:
        no_gradient = ops.zeros_like(kinds)
        positives, negatives = kinds > 0, kinds < 0

        def ranks(score: Tensor) -> tuple[Tensor, ...]:
            """Count what stands before a positive of a score, itself left out."""
            here = ops.expand_dims(score, 1)
            at = ops.logical_and(positives, ops.equal(scores, here))
            before = ops.sigmoid((scores - here) / temperature)
            right = ops.sum(ops.where(positives, before, 0), axis=1, keepdims=True)
            wrong = ops.sum(ops.where(negatives, before, 0), axis=1, keepdims=True)
            return at, row_count(at, scores), before, right - 0.5, wrong

        def following(score: Tensor) -> Tensor:
            right = ops.where(positives, scores, -float("inf"))
            return next_above(right, ops.expand_dims(score, 1))

        def add(score: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            _, ties, _, right, wrong = ranks(score)
            share = ops.where(ties > 0, ties * wrong / (1 + right + wrong), 0)
            return following(score), total + ops.squeeze(share, axis=1)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream

            def step(score: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
                at, ties, before, right, wrong = ranks(score)
                rank = 1 + right + wrong
                slope = ops.where(
                    positives, -wrong, ops.where(negatives, 1 + right, 0)
                ) / ops.square(rank)
                slope = slope * before * (1 - before) / temperature
                # Each of the ties moves all others up, itself down by as much.
                down = ops.sum(slope, axis=1, keepdims=True)
                moved = ties * slope - ops.where(at, down, 0)
                return following(score), total + ops.where(ties > 0, moved, 0)

            start = ops.zeros_like(scores)
            slopes = each_positive(step, scores, positives, start)
            return ops.expand_dims(upstream, 1) * slopes, no_gradient

        # A NaN ends the loop of its row, and must not go unseen.
        counted = ops.logical_or(positives, negatives)
        start = ops.sum(0 * ops.where(counted, scores, 0), axis=1)
        return each_positive(add, scores, positives, start), gradient

    kinds = ops.where(positives, 1, ops.where(negatives, -1, 0))
    return lost(scores, ops.cast(kinds, scores.dtype))
