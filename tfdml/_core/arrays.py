"""Turn what people keep numbers in into NumPy arrays, at the public doors."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.messages import shortened


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return the numbers or names of any array-like, in the order of its rows.

    Args:
        name: The argument's name, for the error.
        values: A NumPy array, a sequence of numbers, a column or frame of pandas, a
            tensor of any backend, a memoryview: whatever `numpy.asarray` takes.

    Returns:
        The array itself, or a new one; never one that its own rules of indexing apply
        to, as those of a column of pandas.

    Raises:
        ValueError: It is no array, or a masked one with missing values.
    """
    if type(values) is np.ndarray:  # nearly always
        return values
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = int(np.argwhere(np.ma.getmaskarray(values))[0][0])
        raise ValueError(
            f"`{name}` must not have missing values. Received: a masked array with one "
            f"in row {row}. Leave such rows out."
        )
    try:
        array = np.asarray(values)
    except Exception as error:  # of whichever library the values are
        raise ValueError(
            f"`{name}` must be an array: {shortened(error)}. "
            f"Received: {type(values).__name__}."
        ) from error
    if array.dtype.kind == "O" and not array.ndim:
        raise ValueError(
            f"`{name}` must be an array or a sequence. Received: {_described(values)}."
        )
    return array


def as_arrays(name: str, data: Any) -> Any:
    """Return array-likes in the dict, tuple or list that they came in, as arrays.

    A list or tuple is one array, unless it holds arrays: then it holds several.

    Raises:
        ValueError: As `as_array`; or an array holds objects that are no text.
    """
    if isinstance(data, dict):
        return {key: as_arrays(name, part) for key, part in data.items()}
    if _holds_arrays(data):
        parts = [as_arrays(name, part) for part in data]
        if hasattr(data, "_fields"):  # a named tuple
            return type(data)(*parts)
        return parts if isinstance(data, list) else tuple(parts)
    array = as_array(name, data)
    if array.dtype.kind == "O" and not all(
        isinstance(value, str | bytes) for value in array.flat
    ):
        raise ValueError(
            f"`{name}` must hold numbers or text. Received: dtype=object"
            f"{_of_types(array)}. Select the columns of one type, without missing "
            "values."
        )
    return array


def leaves(data: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of what `as_arrays` returned."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list | tuple):
        for part in data:
            yield from leaves(part)
    else:
        yield data


def _holds_arrays(data: Any) -> bool:
    return isinstance(data, list | tuple) and any(
        isinstance(part, dict)
        or bool(getattr(part, "shape", ()))
        or _holds_arrays(part)
        for part in data
    )


def _described(values: Any) -> str:
    return "None" if values is None else f"a value of type {type(values).__name__}"


def _of_types(array: NDArray[Any]) -> str:
    names = sorted({type(value).__name__ for value in array.flat})
    return f" of {' and '.join(names[:4])}" if names else ""
