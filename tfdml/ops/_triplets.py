"""Count the triplets that each pair is in, in O(B^2) memory.

A sum of hinges over triplets, sum max(0, D_ap - D_an + margin), is linear in the
distances as long as no hinge changes side: its gradient with respect to D_ap is the
number of negatives that violate the pair, and with respect to D_an minus the number of
positives that do. `hinge_weights` returns these numbers. A loss is then
sum(weights * D) + margin * (number of triplets), exact in value and gradient, and no
triplet is ever listed.

There are two ways to compute the weights. With few positives per anchor, each of their
distances is compared with the whole row in turn: O(B^2 P). With many, rows are sorted
and every distance is looked up by bisection: O(B^2 log B).
"""

from keras import ops

from tfdml._core.control_flow import cond
from tfdml._core.row_order import (
    FEW_POSITIVES,
    each_positive,
    few_positives_only,
    next_above,
    ranks,
    row_counts,
)
from tfdml._core.tensors import Tensor


def hinge_weights(
    distances: Tensor,
    positives: Tensor,
    negatives: Tensor,
    margin: float,
    *,
    window: bool = False,
    shares: Tensor | None = None,
    few_positives: int = FEW_POSITIVES,
) -> Tensor:
    """Weight each pair by its triplets (a, p, n) with D_an < D_ap + margin.

    The hinges of an anchor's triplets sum to sum(weights * D) + margin * (sum of the
    weights of its positives), in value and gradient.

    Args:
        distances: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        margin: Added to D_ap.
        window: Whether triplets must also have D_an > D_ap.
        shares: Weight of each negative in a triplet, `[A, G]`; 1 if not given.
        few_positives: Up to this number of positives per anchor, comparing in turn is
            faster than bisection.

    Returns:
        Constants `[A, G]`: at a positive the sum of the shares of its negatives, at a
        negative minus its share for each of its positives, 0 elsewhere.
    """
    distances = ops.stop_gradient(distances)
    if shares is None:
        shares = ops.ones_like(distances)
    shares = ops.where(negatives, ops.stop_gradient(shares), 0)
    arguments = distances, positives, negatives, shares, margin, window
    weights = cond(
        few_positives_only(positives, few_positives),
        lambda: _hinges_in_turn(*arguments),
        lambda: _hinges_by_bisection(*arguments),
    )
    return ops.stop_gradient(weights)


def _hinges_in_turn(
    distances: Tensor,
    positives: Tensor,
    negatives: Tensor,
    shares: Tensor,
    margin: float,
    window: bool,
) -> Tensor:
    infinity = float("inf")
    positive_distances = ops.where(positives, distances, -infinity)
    negative_distances = ops.where(negatives, distances, infinity)

    def step(distance: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        distance = ops.expand_dims(distance, 1)
        is_positive = ops.equal(positive_distances, distance)
        violates = negative_distances < distance + margin
        if window:
            violates = ops.logical_and(violates, negative_distances > distance)
        share = ops.where(violates, shares, 0)
        total = ops.sum(share, axis=1, keepdims=True)
        ties = row_counts(is_positive, weights.dtype)
        weights = weights + ops.where(is_positive, total, 0) - share * ties
        return next_above(positive_distances, distance), weights

    return each_positive(step, distances, positives, ops.zeros_like(distances))


def _hinges_by_bisection(
    distances: Tensor,
    positives: Tensor,
    negatives: Tensor,
    shares: Tensor,
    margin: float,
    window: bool,
) -> Tensor:
    infinity = float("inf")
    negative_distances = ops.where(negatives, distances, infinity)
    order = ops.argsort(negative_distances, axis=1)
    negative_distances = ops.take_along_axis(negative_distances, order, axis=1)
    sums = ops.cumsum(ops.take_along_axis(shares, order, axis=1), axis=1)
    sums = ops.pad(sums, [[0, 0], [1, 0]])
    positive_distances = ops.sort(ops.where(positives, distances, infinity), axis=1)

    violating = ranks(negative_distances, distances + margin)
    total = ops.take_along_axis(sums, violating, axis=1)
    if window:
        upper = ranks(positive_distances, distances)
        below = ranks(negative_distances, distances, ties=True)
        # With margin 0 and ties the window would have a negative width.
        total = ops.relu(total - ops.take_along_axis(sums, below, axis=1))
    else:
        upper = ops.sum(ops.cast(positives, "int32"), axis=1, keepdims=True)
    violated = upper - ranks(positive_distances + margin, distances, ties=True)
    violated = ops.cast(ops.maximum(violated, 0), distances.dtype)
    return ops.where(positives, total, 0) - shares * violated
