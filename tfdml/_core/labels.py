"""Check the classes, groups and roles of items, and number them from 0."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml.messages import shown

_LONGEST = 1024  # characters of a label, as of the id of an item

_EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24}
"""Up to where each type holds every whole number; 2^53 for float64."""


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
        values: Whole numbers, bools or strings, all of one type, `[N]` or `[N, 1]`, in
            whatever `as_array` takes. Floats must be whole numbers.
        count: The N that it must have; `None` takes any.

    Returns:
        The values `[N]`, floats as int64, strings as NumPy's strings. Integers that 64
        bits cannot hold stay Python's, in an array of objects.

    Raises:
        ValueError: The values are of another type or shape, or of several types:
            whether 1 and "1" are one class is not known. One is missing (NaN, None or
            masked), not whole, or a string of more than 1,024 characters.

    Example:
        >>> as_labels("labels", np.array(["dog", "cat"], object))
        array(['dog', 'cat'], dtype='<U3')
    """
    if isinstance(values, list | tuple):
        _refuse_long(name, values)
    array = as_array(name, values)
    if array.dtype.kind not in "iub" and not hasattr(values, "dtype"):
        array = np.asarray(values, object)  # NumPy made a string of 1 in [1, "a"]
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or (count is not None and len(array) != count):
        shape = "[N]" if count is None else f"[{count}]"
        one_hot = (
            " One-hot labels become class ids by `labels.argmax(axis=1)`."
            if array.ndim == 2 and array.dtype.kind in "iubf"
            else ""
        )
        raise ValueError(
            f"`{name}` must have the shape {shape}. "
            f"Received: shape={array.shape}.{one_hot}"
        )
    if not array.size:
        return array if array.dtype.kind in "iubUS" else array.astype(np.int64)
    if array.dtype.kind in "OT":  # T: NumPy's strings of any length
        return _of_one_type(name, array.astype(object))
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return _whole_numbers(name, array)
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
    array = as_array(name, role)
    if array.dtype.kind == "O" and all(isinstance(r, bool | np.bool_) for r in array):
        array = array.astype(bool)  # a column of pandas' own bools
    if array.dtype != bool or array.shape != (count,):
        raise ValueError(
            f"`{name}` must be a bool array of shape [{count}]. "
            f"Received: dtype={array.dtype}, shape={array.shape}."
        )
    return array


def _of_one_type(name: str, objects: NDArray[Any]) -> NDArray[Any]:
    """Turn Python objects into NumPy's integers, bools or strings."""
    missing = next((row for row, x in enumerate(objects) if _is_missing(x)), None)
    if missing is not None:
        raise ValueError(_missing(name, objects[missing], missing))
    _refuse_long(name, objects)
    types = set(map(type, objects))
    if all(issubclass(one, float | np.floating) for one in types):
        return _whole_numbers(name, objects.astype(np.float64))
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
    names = " and ".join(sorted(one.__name__ for one in types)[:5])
    raise ValueError(
        f"`{name}` must hold integers or strings, all of one type. Received: {names}."
    )


def _refuse_long(name: str, values: Iterable[Any]) -> None:
    """Refuse a long string, since NumPy gives all strings the length of the longest."""
    for row, value in enumerate(values):
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, str | bytes) and len(value) > _LONGEST:
            raise ValueError(
                f"`{name}` must have at most {_LONGEST:,} characters each. "
                f"Received: {len(value):,} in row {row}, {shown(value, 60)}."
            )


def _whole_numbers(name: str, array: NDArray[Any]) -> NDArray[np.int64]:
    """Turn floats, as Keras and data frames make of integers, back into integers."""
    most = _EXACT.get(array.dtype.name, 2**53)
    numbers = array.astype(np.float64)
    wrong = np.flatnonzero(~((numbers == np.floor(numbers)) & (np.abs(numbers) < most)))
    if not wrong.size:
        return numbers.astype(np.int64)
    row, value = int(wrong[0]), float(numbers[wrong[0]])
    if np.isnan(value):
        raise ValueError(_missing(name, value, row))
    rule = "whole numbers or strings"
    if np.isfinite(value) and value == np.floor(value):
        rule = f"integers, not floats, above {most}, where {array.dtype} merges them"
    raise ValueError(f"`{name}` must hold {rule}. Received: {value} in row {row}.")


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def _missing(name: str, value: Any, row: int) -> str:
    return (
        f"`{name}` must not have missing values: an item without a label is of no "
        f"class. Received: {value} in row {row}. Leave such rows out."
    )
