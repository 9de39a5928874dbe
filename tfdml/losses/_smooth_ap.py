"""Compute the Smooth-AP loss: average precision with ranks from sigmoids."""

from typing import Any

from keras import ops

from tfdml._core.row_order import each_positive, next_above
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import scale_of_exponents


class SmoothAPLoss(PairLoss):
    """Smooth-AP loss: 1 - average precision, ranks counted by sigmoids.

    With S the cosine similarities of an anchor to its positives P and its negatives N,
    and G(x) = 1 / (1 + e^(-x / tau)):

        L_a = 1 - 1/|P| sum over i in P of R_i / (R_i + sum over n in N of G(S_n - S_i))
        R_i = 1 + sum over j in P, j != i of G(S_j - S_i)

    and the loss is the mean over the anchors that have positives. The others add 0; an
    anchor without negatives has the loss 0.

    The positives are taken one at a time, forward and backward: O(B^2 P) operations
    for P positives per anchor, O(B^2) memory.

    Args:
        temperature: tau, from 1e-4 to 1e4, in units of cosine similarity. A smaller one
            approximates the average precision better, but fewer pairs have a gradient.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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

    def __init__(self, temperature: float = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature: float = scale_of_exponents("temperature", temperature)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        wide_scores = at_least_float32(scores)
        number = count(positives, scores.dtype, axis=1)
        sums = _lost_precision(wide_scores, positives, negatives, self.temperature)
        values = sums / ops.maximum(number, 1)
        values = scale_to_mean(values, count(number > 0, values.dtype))
        return ops.cast(values, scores.dtype)


def _pair_signs(positives: Tensor, negatives: Tensor, dtype: str) -> Tensor:
    """Encode two masks as one tensor of floats: 1 for a positive, -1 for a negative.

    They are the argument of a function with a gradient of its own, to which JAX hands
    no tensors from outside, and no booleans.
    """
    signs = ops.where(positives, 1, ops.where(negatives, -1, 0))
    return ops.cast(signs, dtype)


def _lost_precision(
    scores: Tensor, positives: Tensor, negatives: Tensor, temperature: float
) -> Tensor:
    """Sum 1 - precision at the rank of each positive, `[A]`."""

    @ops.custom_gradient
    def lost(scores: Tensor, signs: Tensor) -> Any:
        no_gradient = ops.zeros_like(signs)
        positives, negatives = signs > 0, signs < 0

        def ranks(score: Tensor) -> tuple[Tensor, ...]:
            """Count the items that rank before a positive of a score."""
            score = ops.expand_dims(score, 1)
            is_tied = ops.logical_and(positives, ops.equal(scores, score))
            ties = ops.expand_dims(count(is_tied, scores.dtype, axis=1), 1)
            gaps = (scores - score) / temperature
            e = ops.exp(-ops.abs(gaps))
            before = ops.where(gaps < 0, e, 1) / (1 + e)  # the sigmoid
            pos = ops.sum(ops.where(positives, before, 0), axis=1, keepdims=True)
            neg = ops.sum(ops.where(negatives, before, 0), axis=1, keepdims=True)
            slope = e / ops.square(1 + e) / temperature
            return is_tied, ties, slope, pos - 0.5, neg  # without itself

        def following(score: Tensor) -> Tensor:
            positive_scores = ops.where(positives, scores, -float("inf"))
            return next_above(positive_scores, ops.expand_dims(score, 1))

        def add(score: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            _, ties, _, pos, neg = ranks(score)
            share = ops.where(ties > 0, ties * neg / (1 + pos + neg), 0)
            return following(score), total + ops.squeeze(share, axis=1)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream

            def step(score: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
                is_tied, ties, steepness, pos, neg = ranks(score)
                slope = ops.where(negatives, 1 + pos, 0)
                slope = ops.where(positives, -neg, slope)
                slope = slope / ops.square(1 + pos + neg)
                slope = slope * steepness
                # Each of the ties moves all others up and itself down by as much.
                down = ops.sum(slope, axis=1, keepdims=True)
                moved = ties * slope - ops.where(is_tied, down, 0)
                return following(score), total + ops.where(ties > 0, moved, 0)

            start = ops.zeros_like(scores)
            slopes = each_positive(step, scores, positives, start)
            return ops.expand_dims(upstream, 1) * slopes, no_gradient

        # A NaN ends the loop of its row, and must show in the loss.
        is_pair = ops.logical_or(positives, negatives)
        start = ops.sum(0 * ops.where(is_pair, scores, 0), axis=1)
        return each_positive(add, scores, positives, start), gradient

    return lost(scores, _pair_signs(positives, negatives, scores.dtype))
