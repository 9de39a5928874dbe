"""Count, smoothly, how many items rank before each of some items of an anchor."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from tfdml._core.row_order import each_positive, next_above, ranks, row_counts
from tfdml._core.tensors import Tensor


class Step(NamedTuple):
    """What stands for the step from 0 to 1 of a difference of scores at 0.

    Attributes:
        value: The function of the difference.
        slope: Its derivative.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


def sigmoid_step(temperature: float) -> Step:
    """Return 1 / (1 + e^(-x / temperature)), which is at most 1."""

    def value(x: Tensor) -> Tensor:
        e = ops.exp(-ops.abs(x / temperature))
        return ops.where(x < 0, e, 1) / (1 + e)

    def slope(x: Tensor) -> Tensor:
        e = ops.exp(-ops.abs(x / temperature))
        return e / ops.square(1 + e) / temperature

    return Step(value, slope)


def counts_before(scores: Tensor, items: Tensor, others: Tensor, step: Step) -> Tensor:
    """Count the others that rank before each item, an item itself left out.

    One score of each anchor is visited after the other, forward and backward: O(A G P)
    operations for P items per anchor, O(A G) memory, where a tensor of all differences
    would have A x G x G entries. The gradient is that of the sum of steps, to the
    item and to the others.

    Args:
        scores: Float tensor `[A, G]` of at least 32 bits.
        items: Boolean tensor `[A, G]`: what is counted for.
        others: Boolean tensor `[A, G]`: what is counted. It may overlap with the items.
        step: What an other adds, as a function of its score less that of the item.

    Returns:
        Float tensor `[A, G]`, 0 where there is no item. A NaN among the scores of
        an anchor makes all its counts NaN.
    """

    @ops.custom_gradient
    def counted(scores: Tensor, roles: Tensor) -> Any:
        no_gradient = ops.zeros_like(roles)
        items = ops.logical_or(ops.equal(roles, 1), ops.equal(roles, 3))
        others = roles > 1.5

        def visited(score: Tensor) -> tuple[Tensor, Tensor]:
            score = ops.expand_dims(score, 1)
            is_tied = ops.logical_and(items, ops.equal(scores, score))
            return is_tied, scores - score

        def following(score: Tensor) -> Tensor:
            item_scores = ops.where(items, scores, -float("inf"))
            return next_above(item_scores, ops.expand_dims(score, 1))

        def add(score: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            is_tied, gaps = visited(score)
            before = ops.where(others, step.value(gaps), 0)
            before = ops.sum(before, axis=1, keepdims=True)
            return following(score), ops.where(is_tied, before, total)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream

            def back(score: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
                is_tied, gaps = visited(score)
                slopes = ops.where(others, step.slope(gaps), 0)
                weights = ops.where(is_tied, upstream, 0)
                # The item itself moves up and down by as much.
                up = ops.sum(weights, axis=1, keepdims=True) * slopes
                down = weights * ops.sum(slopes, axis=1, keepdims=True)
                return following(score), total + up - down

            start = ops.zeros_like(scores)
            return each_positive(back, scores, items, start), no_gradient

        # A NaN ends the loop of its row, and must show in the counts.
        nothing = ops.where(roles > 0, 0 * scores, 0)
        start = ops.zeros_like(scores) + ops.sum(nothing, axis=1, keepdims=True)
        total = each_positive(add, scores, items, start)
        itself = ops.logical_and(items, others)
        own = ops.where(itself, step.value(ops.zeros_like(scores)), 0)
        return total - own, gradient

    # Two masks in one tensor of floats: JAX hands no tensors from outside to a function
    # with a gradient of its own, and no booleans.
    roles = ops.cast(items, scores.dtype) + 2 * ops.cast(others, scores.dtype)
    return counted(scores, roles)


def counts_at_least(scores: Tensor, others: Tensor) -> Tensor:
    """Count the others whose score is at least that of each entry, `[A, G]`.

    An entry that is one of the others counts itself. No gradient passes.

    Args:
        scores: Float tensor `[A, G]` of at least 32 bits.
        others: Boolean tensor `[A, G]`.
    """
    scores = ops.stop_gradient(scores)
    rows = ops.sort(ops.where(others, scores, float("inf")), axis=1)
    below = ops.cast(ranks(rows, scores), scores.dtype)
    return row_counts(others, scores.dtype) - below
