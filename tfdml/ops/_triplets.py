"""Counts of the triplets that each pair is in, in O(B^2) memory.

A sum of hinges over triplets, sum max(0, D_ap - D_an + margin), is linear in the
distances as long as no hinge changes side: its gradient with respect to D_ap is the
number of negatives that violate the pair, and with respect to D_an minus the number of
positives that do. The functions here give these numbers as weights. A loss is then
sum(weights * D), exact in value and gradient, and no triplet is ever listed.

Two ways lead to the same weights. With few positives an anchor, each of their
distances is compared with the whole row in turn: O(B^2 P). With many, rows are sorted
and every distance is looked up by bisection: O(B^2 log B).
"""

from collections.abc import Callable

from keras import ops

from tfdml.ops._control_flow import cond, while_loop
from tfdml.ops._pairs import Tensor, masked_max

FEW_POSITIVES = 256
"""Up to so many positives of an anchor, comparing in turn is the faster way."""


def hinge_weights(
    distances: Tensor,
    positives: Tensor,
    negatives: Tensor,
    margin: float,
    *,
    window: bool = False,
    shares: Tensor | None = None,
) -> Tensor:
    """Weigh each pair by its triplets (a, p, n) with D_an < D_ap + margin.

    Args:
        distances: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        margin: Added to D_ap.
        window: Whether triplets must also have D_an > D_ap.
        shares: Weight of each negative in a triplet, `[A, G]`; 1 if not given.

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
        _few(positives),
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
    right = ops.where(positives, distances, -infinity)
    wrong = ops.where(negatives, distances, infinity)

    def step(threshold: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        here = ops.expand_dims(threshold, 1)
        at = ops.equal(right, here)
        inside = wrong < here + margin
        if window:
            inside = ops.logical_and(inside, wrong > here)
        share = ops.where(inside, shares, 0)
        total = ops.sum(share, axis=1, keepdims=True)
        weights = weights + ops.where(at, total, 0) - share * row_count(at, weights)
        return next_above(right, here), weights

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
    wrong = ops.where(negatives, distances, infinity)
    order = ops.argsort(wrong, axis=1)
    wrong = ops.take_along_axis(wrong, order, axis=1)
    sums = ops.cumsum(ops.take_along_axis(shares, order, axis=1), axis=1)
    sums = ops.pad(sums, [[0, 0], [1, 0]])
    right = ops.sort(ops.where(positives, distances, infinity), axis=1)

    total = ops.take_along_axis(sums, ranks(wrong, distances + margin), axis=1)
    if window:
        upper = ranks(right, distances)
        beyond = ranks(wrong, distances, ties=True)
        # With margin 0 and ties the window would have a negative width.
        total = ops.relu(total - ops.take_along_axis(sums, beyond, axis=1))
    else:
        upper = ops.sum(ops.cast(positives, "int32"), axis=1, keepdims=True)
    found = upper - ranks(right + margin, distances, ties=True)
    found = ops.cast(ops.maximum(found, 0), distances.dtype)
    return ops.where(positives, total, 0) - shares * found


def semi_hard_weights(
    distances: Tensor, positives: Tensor, negatives: Tensor, margin: float
) -> Tensor:
    """Weigh each pair by its semi-hard triplets with D_an < D_ap + margin.

    A positive meets one negative: the nearest with D_an > D_ap, else the farthest.
    Where several negatives are at that distance, they share the weight equally.

    Args:
        distances: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        margin: Added to D_ap, at least 0.

    Returns:
        Constants `[A, G]`: 1 at a positive that is not far enough from its negative,
        minus the number of such positives at a negative, 0 elsewhere.
    """
    distances = ops.stop_gradient(distances)
    arguments = distances, positives, negatives, margin
    weights = cond(
        _few(positives),
        lambda: _semi_hard_in_turn(*arguments),
        lambda: _semi_hard_by_bisection(*arguments),
    )
    return ops.stop_gradient(weights)


def _semi_hard_in_turn(
    distances: Tensor, positives: Tensor, negatives: Tensor, margin: float
) -> Tensor:
    infinity = float("inf")
    right = ops.where(positives, distances, -infinity)
    wrong = ops.where(negatives, distances, infinity)
    farthest = _farthest(distances, negatives)

    def step(threshold: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        here = ops.expand_dims(threshold, 1)
        at = ops.equal(right, here)
        nearest = ops.expand_dims(next_above(wrong, here), 1)
        chosen = ops.where(nearest < infinity, nearest, farthest)
        active = ops.cast(chosen < here + margin, weights.dtype)
        selected = ops.equal(wrong, chosen)
        share = active * row_count(at, weights)
        share = share / ops.maximum(row_count(selected, weights), 1)
        weights = weights + ops.where(at, active, 0) - ops.where(selected, share, 0)
        return next_above(right, here), weights

    return each_positive(step, distances, positives, ops.zeros_like(distances))


def _semi_hard_by_bisection(
    distances: Tensor, positives: Tensor, negatives: Tensor, margin: float
) -> Tensor:
    infinity = float("inf")
    right = ops.sort(ops.where(positives, distances, infinity), axis=1)
    wrong = ops.sort(ops.where(negatives, distances, infinity), axis=1)
    farthest = _farthest(distances, negatives)
    ends = [[0, 0], [1, 1]]
    wrong_or_none = ops.pad(wrong, ends, constant_values=infinity)
    before, through = ranks(wrong, distances), ranks(wrong, distances, ties=True)

    nearest = ops.take_along_axis(wrong_or_none, through + 1, axis=1)
    chosen = ops.where(nearest < infinity, nearest, farthest)
    active = ops.logical_and(positives, chosen < distances + margin)

    # A negative is met by the positives between it and the negative before it, the
    # farthest one also by all beyond it; of these, by those that it is too near to.
    previous = ops.take_along_axis(wrong_or_none, before, axis=1)
    lower = ops.where(before > 0, ranks(right, previous), 0)
    lower = ops.maximum(lower, ranks(right + margin, distances, ties=True))
    count = ops.sum(ops.cast(positives, "int32"), axis=1, keepdims=True)
    upper = ops.where(ops.equal(distances, farthest), count, ranks(right, distances))
    met = ops.cast(ops.maximum(upper - lower, 0), distances.dtype)
    met = met / ops.cast(ops.maximum(through - before, 1), distances.dtype)
    return ops.cast(active, distances.dtype) - ops.where(negatives, met, 0)


def ranks(rows: Tensor, values: Tensor, *, ties: bool = False) -> Tensor:
    """Count the entries of each sorted row that are below each value of that row.

    Bisection of whole matrices at once: XLA makes a cubic tensor of
    `tf.searchsorted`, and `keras.ops.searchsorted` takes one row only.

    Args:
        rows: Tensor `[A, N]`, each row ascending.
        values: Tensor `[A, M]`.
        ties: Whether entries equal to the value count too.

    Returns:
        int32 tensor `[A, M]`.
    """
    last = ops.shape(rows)[1] - 1

    def halve(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        middle = (low + high) // 2
        entry = ops.take_along_axis(rows, ops.minimum(middle, last), axis=1)
        below = entry <= values if ties else entry < values
        below = ops.logical_and(below, low < high)
        return ops.where(below, middle + 1, low), ops.where(below, high, middle)

    low = ops.zeros_like(values, dtype="int32")
    low, _ = while_loop(
        lambda low, high: ops.any(low < high), halve, (low, low + last + 1)
    )
    return low


def _few(positives: Tensor) -> Tensor:
    """Whether no anchor has many positives."""
    counts = ops.sum(ops.cast(positives, "int32"), axis=1)
    return ops.all(counts <= FEW_POSITIVES)


def each_positive(
    step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    values: Tensor,
    positives: Tensor,
    start: Tensor,
) -> Tensor:
    """Take the positives of all rows by ascending value, equal values together.

    Args:
        step: Maps the value taken in each row, `[A]` (infinity where none is left), and
            what there is so far, to the next value and what there is then.
        values: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        start: What there is before the first step.

    Returns:
        What there is after the last step.
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
    """Return the largest distance to a negative `[A, 1]`; infinity if there is none."""
    farthest = masked_max(distances, negatives, float("inf"))
    return ops.expand_dims(farthest, 1)


def row_count(mask: Tensor, like: Tensor) -> Tensor:
    """Count each row's True values, `[A, 1]`, in the type of `like`."""
    return ops.sum(ops.cast(mask, like.dtype), axis=1, keepdims=True)
