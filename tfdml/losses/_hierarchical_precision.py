"""Compute the precision that the order of an anchor's candidates loses, by levels."""

import math
from collections.abc import Sequence

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._counts_before import (
    Step,
    counts_at_least,
    counts_before,
    sigmoid_step,
)


def steep_step(temperature: float, jump: float, slope: float, start: float) -> Step:
    """Return a step that is never below that from 0 to 1, and rises for ever.

    G is the sigmoid of x / temperature: G(x) up to 0, then G(x) + jump up to the start
    of the slope, and from there a straight line.
    """
    sigmoid = sigmoid_step(temperature)
    top = 1 / (1 + math.exp(-start / temperature))

    def value(x: Tensor) -> Tensor:
        near = sigmoid.value(x)
        near = ops.where(x > 0, near + jump, near)
        return ops.where(x > start, top + jump + slope * (x - start), near)

    def slope_of(x: Tensor) -> Tensor:
        return ops.where(x > start, slope, sigmoid.slope(x))

    return Step(value, slope_of)


def lost_precision(
    scores: Tensor,
    levels: Sequence[Tensor],
    relevances: Sequence[Tensor],
    step: Step,
) -> Tensor:
    """Compute 1 - H-AP of each anchor, with ranks that a step makes smooth.

    With rel the relevance of a candidate, which its level and the anchor say:

        rank_i = 1 + number of candidates of the level of i or a higher one, before i
                 + sum over candidates j of a lower level of step(S_j - S_i)
        h_i = rel_i + sum over candidates j before i of min(rel_i, rel_j)
        H-AP = sum over i of h_i / rank_i  /  sum over i of rel_i

    A candidate of the same score counts as one before i. The gradient passes through
    the step alone; that of the other counts is 0 wherever they have one. With one level
    of positives it is average precision.

    Args:
        scores: Float tensor `[A, G]` of at least 32 bits.
        levels: Boolean tensors `[A, G]`: the candidates of each level, the first of
            those that are not relevant. No two overlap.
        relevances: Float tensors `[A, 1]`, above 0: those of each level but the first.
        step: What stands for the step from 0 to 1 at 0.

    Returns:
        Float tensor `[A]`, 0 for an anchor without relevant candidates.
    """
    zero = ops.zeros_like(relevances[0])
    values = [zero, *relevances]
    exact = [counts_at_least(scores, level) for level in levels[1:]]
    lost, total = ops.zeros_like(scores[:, 0]), ops.zeros_like(scores[:, 0])
    smooth = []
    for level in range(len(levels) - 1):
        higher = levels[level + 1]
        for other in levels[level + 2 :]:
            higher = ops.logical_or(higher, other)
        smooth.append(counts_before(scores, higher, levels[level], step))
    for level in range(1, len(levels)):
        relevance = values[level]
        # The item itself is among those of its level: the 1 of its rank, and rel_i.
        rank, excess = ops.zeros_like(scores), ops.zeros_like(scores)
        for other in range(len(levels)):
            shared = ops.minimum(relevance, values[other])
            if other < level:
                rank = rank + smooth[other]
                excess = excess + relevance * smooth[other]
                if other:
                    excess = excess - shared * exact[other - 1]
            else:
                rank = rank + exact[other - 1]
                excess = excess + (relevance - shared) * exact[other - 1]
        here = levels[level]
        # rel_i - h_i / rank_i, without a difference of two large numbers.
        costs = ops.where(here, excess / ops.where(here, rank, 1), 0)
        lost = lost + ops.sum(costs, axis=1)
        total = total + ops.sum(ops.where(here, relevance, 0), axis=1)
    return lost / ops.where(ops.equal(total, 0), 1, total)
