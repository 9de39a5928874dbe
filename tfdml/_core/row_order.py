"""Visit and rank the values of each row in ascending order, all rows at once."""

from collections.abc import Callable

from keras import ops

from tfdml._core.control_flow import while_loop
from tfdml._core.tensors import Tensor, count

FEW_POSITIVES = 256
"""Up to this number of positives per anchor, visiting each is faster than sorting."""


def few_positives_only(positives: Tensor, limit: int) -> Tensor:
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


def row_counts(mask: Tensor, dtype: str) -> Tensor:
    """Count each row's True values, `[A, 1]`."""
    return ops.cast(ops.expand_dims(count(mask, dtype, axis=1), 1), dtype)


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
