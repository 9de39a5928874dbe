"""Check the classes, groups and roles of items, and number them from 0."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def class_codes(
    name: str, values: ArrayLike, count: int | None = None
) -> NDArray[np.int64]:
    """Number the distinct values from 0 in their sorted order.

    Args:
        name: The argument's name, for the error.
        values: Integers, bools or strings `[N]`, as `as_labels` takes them.
        count: The N that it must have; `None` takes any.

    Returns:
        The number of each value, int64 `[N]`.

    Raises:
        ValueError: The values are of another type or shape.

    Example:
        >>> class_codes("labels", ["dog", "cat", "dog"]).tolist()
        [1, 0, 1]
    """
    return numbered(as_labels(name, values, count))


def numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number the distinct values of checked labels from 0 in their sorted order."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def as_labels(name: str, values: ArrayLike, count: int | None = None) -> NDArray[Any]:
    """Return what items are called, in an array whose values can be compared.

    Args:
        name: The argument's name, for the error.
        values: Integers, bools or strings `[N]`: an array of them, or Python objects of
            one type, as in a list or in a column of a data frame.
        count: The N that it must have; `None` takes any.

    Returns:
        The values `[N]`, strings as NumPy's strings. Integers that 64 bits cannot hold
        stay Python's, in an array of objects.

    Raises:
        ValueError: The values are of another type or shape, or of several types:
            whether 1 and "1" are one class is not known.

    Example:
        >>> as_labels("labels", np.array(["dog", "cat"], object))
        array(['dog', 'cat'], dtype='<U3')
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iub" and not hasattr(values, "dtype"):
            array = np.asarray(values, object)  # NumPy made a string of 1 in [1, "a"]
    except ValueError as error:
        raise ValueError(f"`{name}` must be an array: {error}.") from error
    if array.ndim != 1 or (count is not None and len(array) != count):
        shape = "[N]" if count is None else f"[{count}]"
        raise ValueError(
            f"`{name}` must have the shape {shape}. Received: shape={array.shape}."
        )
    if not array.size:
        return array if array.dtype.kind in "iubUS" else array.astype(np.int64)
    if array.dtype.kind == "O":
        return _of_one_type(name, array)
    if array.dtype.kind not in "iubUS":
        raise ValueError(
            f"`{name}` must hold integers or strings. Received: dtype={array.dtype}."
        )
    return array


def as_role(name: str, role: ArrayLike | None, count: int) -> NDArray[np.bool_]:
    """Return which items have a role, such as that of a query.

    Args:
        name: The argument's name, for the error.
        role: Bool array `[N]`; `None`: all items have it.
        count: N.

    Returns:
        Bool array `[N]`.

    Raises:
        ValueError: It is of another type or shape. Numbers are refused: 0 and 1 may
            mean places.

    Example:
        >>> as_role("is_query", None, 2).tolist()
        [True, True]
    """
    if role is None:
        return np.ones(count, bool)
    array = np.asarray(role)
    if array.dtype != bool or array.shape != (count,):
        raise ValueError(
            f"`{name}` must be a bool array of shape [{count}]. "
            f"Received: dtype={array.dtype}, shape={array.shape}."
        )
    return array


def _of_one_type(name: str, objects: NDArray[Any]) -> NDArray[Any]:
    """Turn Python objects into NumPy's integers, bools or strings."""
    types = set(map(type, objects))
    for known, dtype in (
        ((bool, np.bool_), "bool"),
        ((int, np.integer), "int64"),
        (str, "str"),
        (bytes, "bytes"),
    ):
        if not all(issubclass(one, known) for one in types):
            continue
        if dtype == "int64" and bool in types:  # an int, for Python
            break
        try:
            return objects.astype(dtype)
        except OverflowError:
            return np.array([int(value) for value in objects], object)
    names = " and ".join(sorted(one.__name__ for one in types))
    raise ValueError(
        f"`{name}` must hold integers or strings, all of one type. Received: {names}."
    )
