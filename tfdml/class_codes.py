"""Classes, clusters and groups given by integers or names, numbered from 0."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["class_codes"]


def class_codes(
    name: str, values: ArrayLike, count: int | None = None
) -> NDArray[np.int64]:
    """Number the distinct values from 0 in their sorted order.

    Args:
        name: The argument's name, for the error.
        values: Integers, bools or strings `[N]`.
        count: The N that it must have; `None` takes any.

    Returns:
        The number of each value, int64 `[N]`.

    Raises:
        ValueError: The values are of another type or shape.

    Example:
        >>> class_codes("labels", ["dog", "cat", "dog"]).tolist()
        [1, 0, 1]
    """
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)  # a column of a data frame
    if array.ndim != 1 or (count is not None and len(array) != count):
        shape = "[N]" if count is None else f"[{count}]"
        raise ValueError(
            f"`{name}` must have the shape {shape}. Received: shape={array.shape}."
        )
    if array.size and array.dtype.kind not in "iubUS":
        raise ValueError(
            f"`{name}` must hold integers or strings. Received: dtype={array.dtype}."
        )
    return np.unique(array, return_inverse=True)[1].astype(np.int64)
