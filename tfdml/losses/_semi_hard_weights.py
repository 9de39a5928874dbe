"""Count the semi-hard triplets that each pair is in, in O(B^2) memory.

The weights are used as those of `tfdml.ops.hinge_weights`, and computed in the same two
ways: in turn for few positives per anchor, by bisection for many.
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
from tfdml.ops import masked_max


def semi_hard_weights(
    distances: Tensor,
    positives: Tensor,
    negatives: Tensor,
    margin: float,
    *,
    few_positives: int = FEW_POSITIVES,
) -> Tensor:
    """Weight each pair by its semi-hard triplets with D_an < D_ap + margin.

    A positive is compared with one negative: the nearest with D_an > D_ap, else the
    farthest. Negatives at equal distances share the weight equally.

    Args:
        distances: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        margin: Added to D_ap, at least 0.
        few_positives: As in `hinge_weights`.

    Returns:
        Constants `[A, G]`: 1 at a positive that is not far enough from its negative,
        minus the number of such positives at a negative, 0 elsewhere.
    """
    distances = ops.stop_gradient(distances)
    arguments = distances, positives, negatives, margin
    weights = cond(
        few_positives_only(positives, few_positives),
        lambda: _semi_hard_in_turn(*arguments),
        lambda: _semi_hard_by_bisection(*arguments),
    )
    return ops.stop_gradient(weights)


def _semi_hard_in_turn(
    distances: Tensor, positives: Tensor, negatives: Tensor, margin: float
) -> Tensor:
    infinity = float("inf")
    positive_distances = ops.where(positives, distances, -infinity)
    negative_distances = ops.where(negatives, distances, infinity)
    farthest = _farthest(distances, negatives)

    def step(distance: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        distance = ops.expand_dims(distance, 1)
        is_positive = ops.equal(positive_distances, distance)
        nearest = ops.expand_dims(next_above(negative_distances, distance), 1)
        chosen = ops.where(nearest < infinity, nearest, farthest)
        active = ops.cast(chosen < distance + margin, weights.dtype)
        is_negative = ops.equal(negative_distances, chosen)
        share = active * row_counts(is_positive, weights.dtype)
        share = share / ops.maximum(row_counts(is_negative, weights.dtype), 1)
        weights = weights + ops.where(is_positive, active, 0)
        weights = weights - ops.where(is_negative, share, 0)
        return next_above(positive_distances, distance), weights

    return each_positive(step, distances, positives, ops.zeros_like(distances))


def _semi_hard_by_bisection(
    distances: Tensor, positives: Tensor, negatives: Tensor, margin: float
) -> Tensor:
    infinity = float("inf")
    positive_distances = ops.sort(ops.where(positives, distances, infinity), axis=1)
    negative_distances = ops.sort(ops.where(negatives, distances, infinity), axis=1)
    farthest = _farthest(distances, negatives)
    padded = ops.pad(negative_distances, [[0, 0], [1, 1]], constant_values=infinity)
    below = ranks(negative_distances, distances)
    through = ranks(negative_distances, distances, ties=True)

    nearest = ops.take_along_axis(padded, through + 1, axis=1)
    chosen = ops.where(nearest < infinity, nearest, farthest)
    active = ops.logical_and(positives, chosen < distances + margin)

    # A negative is chosen by the positives between it and the next nearer negative, the
    # farthest one also by all beyond it; of these, by those that it is too near to.
    previous = ops.take_along_axis(padded, below, axis=1)
    lower = ops.where(below > 0, ranks(positive_distances, previous), 0)
    too_near = ranks(positive_distances + margin, distances, ties=True)
    lower = ops.maximum(lower, too_near)
    total = ops.sum(ops.cast(positives, "int32"), axis=1, keepdims=True)
    upper = ranks(positive_distances, distances)
    upper = ops.where(ops.equal(distances, farthest), total, upper)
    chosen_by = ops.cast(ops.maximum(upper - lower, 0), distances.dtype)
    ties = ops.cast(ops.maximum(through - below, 1), distances.dtype)
    shared = ops.where(negatives, chosen_by / ties, 0)
    return ops.cast(active, distances.dtype) - shared


def _farthest(distances: Tensor, negatives: Tensor) -> Tensor:
    """Return the largest distance to a negative `[A, 1]`; infinity if none."""
    farthest = masked_max(distances, negatives, float("inf"))
    return ops.expand_dims(farthest, 1)
