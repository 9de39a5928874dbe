"""Check rows of embeddings, and scale them to unit length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._core.arrays import as_array
from tfdml._core.parallel import in_threads

DIVERGED = (
    "Training that makes such numbers has diverged, and needs a smaller learning rate."
)
"""The remedy if the embeddings of a model are not finite."""

_AT_HAND = 2**17  # numbers widened to float64 at a time: they stay in a core's cache
_WORTH_A_THREAD = 2**20  # numbers


def as_embeddings(
    name: str, values: Any, *, unit: bool, remedy: str = ""
) -> NDArray[np.float32]:
    """Check that `values` are embeddings `[rows, D]` and return them in float32.

    Args:
        name: The argument's name, for the error.
        values: Real finite numbers of rank 2, of any float or integer dtype, bfloat16
            too.
        unit: Whether the rows will be scaled to unit length, so that a row of
            zeros has no meaning.
        remedy: A sentence on what to do about numbers that are not finite.

    Returns:
        Row-major float32 `[rows, D]`; the array itself if it already is that.

    Raises:
        ValueError: It is not of rank 2, not real, has no columns, a NaN, an
            infinity, a row that float32 rounds to zeros, or (with `unit`) a row of
            zeros.
    """
    return _checked(name, values, unit, remedy)[0]


def embeddings_and_norms(
    name: str, values: Any, *, unit: bool
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Check as `as_embeddings`, and return the lengths that the check computes.

    Returns:
        The embeddings, and the length of each row, up to rounding that of `row_norms`.
    """
    array, squares = _checked(name, values, unit, "")
    return array, np.sqrt(squares)


def _checked(
    name: str, values: Any, unit: bool, remedy: str
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return checked embeddings and the sums of their squares."""
    array = as_array(name, values)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise ValueError(
            f"`{name}` must hold real numbers. Received: dtype={array.dtype}."
        )
    if array.ndim != 2 or array.shape[1] == 0:
        remedy = " Pass one vector as vector[None, :]." if array.ndim == 1 else ""
        raise ValueError(
            f"`{name}` must have the shape [rows, D], D at least 1. "
            f"Received: shape={array.shape}.{remedy}"
        )
    given = array
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        with np.errstate(over="ignore", under="ignore"):  # reported below
            array = np.ascontiguousarray(array, dtype=np.float32)
    # A finite sum of squares in float64 proves every number finite, in one pass.
    if len(array) == 1:  # a query alone: einsum() would take a tenth of its search
        wide = array[0].astype(np.float64)
        squares = np.array([wide.dot(wide)])
        if 0 < squares[0] < np.inf:
            return array, squares
    else:
        squares = _squares(array)
        if squares.all() and np.isfinite(squares).all():
            return array, squares
    if not np.isfinite(squares).all():
        row = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise ValueError(
            f"`{name}` must be finite in float32. Received: NaN or infinity in row "
            f"{row}.{remedy and f' {remedy}'}"
        )
    zeros = np.flatnonzero(squares == 0)
    vanished = (
        zeros[given[zeros].any(axis=1)] if given.dtype.itemsize > 4 else zeros[:0]
    )
    if vanished.size:
        raise ValueError(
            f"`{name}` must not be too small for float32, which makes zeros of row "
            f"{vanished[0]}. Scale the embeddings up."
        )
    if unit and not squares.all():
        row = int(np.flatnonzero(squares == 0)[0])
        raise ValueError(
            f"`{name}` must not have a row of zeros: its cosine is not defined. "
            f"Received: zeros in row {row}. Leave that row out."
        )
    return array, squares


def row_norms(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return the length of each row, summed in float64 the same way wherever it is."""
    return np.sqrt(_squares(array))


def row_products(
    left: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the inner product of each pair of rows, whatever others are beside it."""
    if len(left) == 1:  # of a long row alone, einsum() adds in another order
        left, right = left.repeat(2, axis=0), right.repeat(2, axis=0)
        return np.einsum("nd,nd->n", left, right)[:1]
    return np.einsum("nd,nd->n", left, right)


def _squares(array: NDArray[Any]) -> NDArray[np.float64]:
    count, dimension = array.shape
    squares = np.empty(count)
    step = max(1, _AT_HAND // dimension)

    def add_up(part: slice) -> None:
        held = np.empty((min(step, part.stop - part.start), dimension))
        for start in range(part.start, part.stop, step):
            some = slice(start, min(start + step, part.stop))
            wide = held[: some.stop - start]
            wide[...] = array[some]
            squares[some] = row_products(wide, wide)

    in_threads(add_up, count, least=max(1, _WORTH_A_THREAD // dimension))
    return squares


def unit_or_zero(array: NDArray[Any]) -> NDArray[np.float32]:
    """Scale each row to length 1, float32; rows of zeros stay."""
    norms = row_norms(array)[:, None]
    rows = np.empty(array.shape, np.float32)
    return np.divide(
        array, np.where(norms > 0, norms, 1), out=rows, casting="same_kind"
    )
