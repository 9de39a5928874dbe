"""Count the triplets that each pair is in, in O(B^2) memory.

A sum of hinges over triplets, sum max(0, D_ap - D_an + margin), is linear in the
distances as long as no hinge changes side: its gradient with respect to D_ap is the
number of negatives that violate the pair, and with respect to D_an minus the number of
positives that do. The functions here give these numbers as weights. A loss is then
sum(weights * D), exact in value and gradient, and no triplet is ever listed.

There are two ways to compute the weights. With few positives per anchor, each of their
distances is compared with the whole row in turn: O(B^2 P). With many, rows are sorted
and every distance is looked up by bisection: O(B^2 log B).
"""

from collections.abc import Callable

from keras import ops

from tfdml.ops._control_flow import cond, while_loop
from tfdml.ops._pairs import Tensor, count, masked_max
from tfdml.ops._ranking import ranks

FEW_POSITIVES = 256


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
        _few(positives, few_positives),
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
        ties = _row_counts(is_positive, weights.dtype)
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


def weighted_hinges(
    distances: Tensor, positives: Tensor, weights: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Sum the hinges of each anchor's triplets, given the weights of its pairs.

    Args:
        distances: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        weights: Weights `[A, G]` of `hinge_weights` or `semi_hard_weights`.
        margin: Added to D_ap.

    Returns:
        Sum of D_ap - D_an + margin over the triplets of each anchor, `[A]`, and the
        number of these triplets, `[A]`.
    """
    active = ops.sum(ops.where(positives, weights, 0), axis=1)
    # Pairs of weight 0 stay in the sum, so that a NaN among them shows.
    return ops.sum(weights * distances, axis=1) + margin * active, active


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
        _few(positives, few_positives),
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
        share = active * _row_counts(is_positive, weights.dtype)
        share = share / ops.maximum(_row_counts(is_negative, weights.dtype), 1)
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


def _few(positives: Tensor, limit: int) -> Tensor:
    """Return whether no anchor has more positives than a limit."""
    counts = ops.sum(ops.cast(positives, "int32"), axis=1)
    return ops.all(counts <= limit)


def each_positive(
    step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    values: Tensor,
    positives: Tensor,
    start: Tensor,
) -> Tensor:
    """Visit the positives of all rows by ascending value, equal values together.

    Args:
        step: Maps the value taken in each row, `[A]` (infinity where none is left), and
            the total so far to the next value and the new total.
        values: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        start: The total before the first step.

    Returns:
        The total after the last step.
    """
    infinity = float("inf")
    first = ops.min(ops.where(positives, values, infinity), axis=1)
    return while_loop(
        lambda value, total: ops.any(value < infinity), step, (first, start)
    )[1]


def next_above(x: Tensor, threshold: Tensor) -> Tensor:
    """Return each row's smallest value above its threshold `[A, 1]`, or infinity."""
    return ops.min(ops.where(x > threshold, x, float("inf")), axis=1)


def _farthest(distances: Tensor, negatives: Tensor) -> Tensor:
    """Return the largest distance to a negative `[A, 1]`; infinity if none."""
    farthest = masked_max(distances, negatives, float("inf"))
    return ops.expand_dims(farthest, 1)


def _row_counts(mask: Tensor, dtype: str) -> Tensor:
    """Count each row's True values, `[A, 1]`."""
    return ops.cast(ops.expand_dims(count(mask, dtype, axis=1), 1), dtype)
