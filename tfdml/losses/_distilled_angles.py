"""Compare the angles of all triplets of a batch with a teacher's, in O(B^2) memory."""

from typing import Any

from keras import ops

from tfdml._core.control_flow import while_loop
from tfdml._core.tensors import Tensor


def angle_costs(teacher: Tensor, student: Tensor) -> Tensor:
    """Average the costs of the angles at each item.

    Args:
        teacher: Float `[B, teacher's dimension]`, constants.
        student: Float `[B, dimension]`.

    Returns:
        `[B]`: for each item j the mean over all i and k of the Huber loss of the
        difference of cos(i, j, k) in both.
    """

    # Its own gradient keeps one B x B matrix; that of a loop would keep one a step.
    @ops.custom_gradient
    def costs(student: Tensor, teacher: Tensor) -> Any:
        no_gradient = ops.zeros_like(teacher)
        rows = ops.cast(ops.shape(student)[0], student.dtype)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream

            def slopes(j: Tensor) -> Tensor:
                units, scales = _directions(student, j)
                gaps = _gaps(units, teacher, j)
                by_unit = 2 * ops.matmul(ops.clip(gaps, -1, 1), units)
                along = ops.sum(by_unit * units, axis=1, keepdims=True)
                moved = (by_unit - along * units) * scales
                moved = moved - _only(j, ops.sum(moved, axis=0), moved)
                return moved / rows * (ops.take(upstream, j) / rows)

            return _total(slopes, student), no_gradient

        def values(j: Tensor) -> Tensor:
            gaps = _gaps(_directions(student, j)[0], teacher, j)
            size = ops.abs(gaps)
            huber = ops.where(size < 1, ops.square(gaps) / 2, size - 0.5)
            # Means of rows first: a sum over a large batch loses digits.
            cost = ops.sum(ops.sum(huber, axis=1) / rows) / rows
            return _only(j, cost, student[:, 0])

        return _total(values, student[:, 0]), gradient

    return costs(student, teacher)


def _total(step: Any, like: Tensor) -> Tensor:
    """Add what `step` returns for each item."""
    rows = ops.shape(like)[0]
    start = ops.zeros((), "int32"), ops.zeros_like(like)
    return while_loop(
        lambda j, total: j < rows, lambda j, total: (j + 1, total + step(j)), start
    )[1]


def _directions(x: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unit vectors from item j to all, and 1 / distance `[B, 1]`.

    Both are 0 for items at the place of j.
    """
    gaps = x - ops.expand_dims(ops.take(x, j, axis=0), 0)
    # Divided first, so that neither huge nor tiny gaps overflow when they are squared.
    largest = ops.max(ops.abs(gaps), axis=1, keepdims=True)
    is_zero = ops.equal(largest, 0)
    largest = ops.where(is_zero, ops.ones_like(largest), largest)
    scaled = gaps / largest
    squared = ops.sum(ops.square(scaled), axis=1, keepdims=True)
    inverse = ops.rsqrt(ops.where(is_zero, ops.ones_like(squared), squared))
    scales = ops.where(is_zero, ops.zeros_like(inverse), inverse / largest)
    return scaled * inverse, scales


def _gaps(units: Tensor, teacher: Tensor, j: Tensor) -> Tensor:
    """Subtract the teacher's cosines at item j from the student's, `[B, B]`."""
    wanted, _ = _directions(teacher, j)
    return ops.matmul(units, ops.transpose(units)) - ops.matmul(
        wanted, ops.transpose(wanted)
    )


def _only(j: Tensor, value: Tensor, like: Tensor) -> Tensor:
    """Return the value in row j of zeros."""
    is_row = ops.equal(ops.arange(ops.shape(like)[0], dtype="int32"), j)
    if len(like.shape) == 2:
        is_row, value = ops.expand_dims(is_row, 1), ops.expand_dims(value, 0)
    return ops.where(is_row, value, ops.zeros_like(like))
