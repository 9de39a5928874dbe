"""Convert JSON values to tensors, by the rules of TF Serving's REST protocol.

The rules and the texts of the errors are those of TF Serving 2.20
(tensorflow_serving/util/json_tensor.cc). Four differences, all towards safety: what is
quoted of a request in an error is cut short, a number that does not fit an 8 or 16 bit
integer is refused instead of wrapped, strings must be valid UTF-8, and nesting is
bounded (TF Serving 2.20 dies of a deeply nested request).
"""

import binascii
import itertools
import json
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pybase64

from ...web.status import StatusCode, StatusError, refuse
from ..models.servable import type_name

_LONGEST_QUOTE = 200
_MOST_DIMENSIONS = 32

# Whole numbers up to here are exact in the type; TF Serving refuses larger ones.
_LARGEST_EXACT = {"float32": 2**24 - 1, "float64": 2**53 - 1}
_INTEGERS = {"int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"}

# Infinity is distinguished from a number that overflows, such as 1e999, by identity.
_INFINITIES = (float("inf"), float("-inf"))
_CONSTANTS = {
    "NaN": float("nan"),
    "Infinity": _INFINITIES[0],
    "-Infinity": _INFINITIES[1],
}
_DECODER = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__)
_ENCODER = json.JSONEncoder(indent=4, ensure_ascii=False)

_PARSE_ERRORS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": (
        "Missing a name for object member."
    ),
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma or closing bracket.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Invalid control character at": "Invalid encoding in string.",
}


def parse_json(body: bytes | bytearray) -> Any:
    """Parse the first JSON value of a body; `NaN` and `Infinity` are numbers.

    Args:
        body: UTF-8 text. Anything behind the first value is ignored.

    Returns:
        The value as Python's `json` returns it.

    Raises:
        StatusError: The body is not JSON, or nested too deeply to be read.
    """
    if not body:
        refuse("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(
            f"JSON Parse error: Invalid encoding in string. at offset: {error.start}"
        )
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        reason = _PARSE_ERRORS.get(error.msg, error.msg)
        offset = len(text[: error.pos].encode())
        refuse(f"JSON Parse error: {reason} at offset: {offset}")
    except RecursionError:
        refuse("JSON Parse error: The document is nested too deeply.")
    except ValueError:  # an integer of more digits than Python converts
        refuse("JSON Parse error: Number too big to be stored in double.")


def is_base64(value: object) -> bool:
    """Return whether the value is `{"b64": "..."}` and nothing else."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def quote(value: Any) -> str:
    """Print a JSON value for an error message, cut to a length that can be read."""
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):
            text += piece[: _LONGEST_QUOTE + 1]
            if len(text) > _LONGEST_QUOTE:
                return text[:_LONGEST_QUOTE] + "..."
    except (RecursionError, ValueError):  # nested deeply, or a huge integer
        return text + "..."
    return text


def tensor(value: Any, dtype: str) -> np.ndarray:
    """Convert a JSON value, or nested lists of them, to an array.

    Args:
        value: A value from `parse_json`.
        dtype: TensorFlow's name of the wanted type, such as "float32" or "string".

    Returns:
        Array of that type; strings as object array of bytes.

    Raises:
        StatusError: A value is of the wrong type, or the lists are ragged. The
            message names the first such value.
    """
    array = try_tensor(value, dtype)
    if array is not None:
        return array
    shape = _shape(value)
    if len(shape) > _MOST_DIMENSIONS:
        refuse(f"Lists are nested deeper than {_MOST_DIMENSIONS} levels.")
    _refuse_first(value, shape, dtype)


def try_tensor(value: Any, dtype: str) -> np.ndarray | None:
    """Convert all values at once; None where something is wrong."""
    shape = _shape(value)
    return None if len(shape) > _MOST_DIMENSIONS else _convert(value, shape, dtype)


def first_misfit(values: list[Any], shape: Sequence[int], dtype: str) -> int:
    """Find the first value that does not have a shape.

    Halves are tried, so that it takes about as long as to convert all values, and not
    as long as to look at each by itself.

    Args:
        values: At least one of them does not fit.
        shape: Sizes that each must have.
        dtype: TensorFlow's name of the wanted type.

    Returns:
        Its place in the list.
    """
    start, end = 0, len(values)
    while end - start > 1:
        middle = (start + end) // 2
        half = values[start:middle]
        if _convert(half, [len(half), *shape], dtype) is None:
            end = middle
        else:
            start = middle
    return start


def _convert(value: Any, shape: Sequence[int], dtype: str) -> np.ndarray | None:
    """Convert nested lists of known sizes; None where something is wrong."""
    leaves = [value]
    for size in shape:
        if not set(map(type, leaves)) <= {list} or not set(map(len, leaves)) <= {size}:
            return None
        leaves = list(itertools.chain.from_iterable(leaves))
    array = _try_leaves(leaves, dtype)
    return None if array is None else array.reshape(shape)


def _shape(value: Any) -> list[int]:
    shape = []
    while type(value) is list:
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _try_leaves(leaves: list[Any], dtype: str) -> np.ndarray | None:
    kinds = set(map(type, leaves))
    try:
        if dtype in _LARGEST_EXACT and kinds <= {int, float}:
            return _try_floats(leaves, dtype, has_integers=int in kinds)
        if dtype in _INTEGERS and kinds <= {int}:
            wide = np.array(leaves, np.uint64 if dtype == "uint64" else np.int64)
            limits = np.iinfo(dtype)
            fits = ((wide >= limits.min) & (wide <= limits.max)).all()
            return wide.astype(dtype) if fits else None
        if dtype == "bool" and kinds <= {bool}:
            return np.array(leaves, bool)
        if dtype == "string" and kinds <= {str, dict}:
            strings = np.empty(len(leaves), object)
            strings[:] = [_bytes(leaf) for leaf in leaves]
            return strings
    except (OverflowError, StatusError):
        return None
    return None


def _try_floats(
    leaves: list[Any], dtype: str, *, has_integers: bool
) -> np.ndarray | None:
    wide = np.array(leaves, np.float64)
    size = np.abs(wide)
    largest = np.where(np.isinf(size), np.inf, np.finfo(dtype).max)
    # Of what is rare, each value is looked at: infinities and large whole numbers.
    for index in np.flatnonzero(np.isinf(size)).tolist():
        if not _is_infinity(leaves[index]):
            return None
    if has_integers:
        for index in np.flatnonzero(size > _LARGEST_EXACT[dtype]).tolist():
            if _is_exact_integer(leaves[index]):
                return None
    return None if (size > largest).any() else wide.astype(dtype)


def _is_infinity(value: int | float) -> bool:
    return any(value is known for known in _INFINITIES)


def _is_exact_integer(value: int | float) -> bool:
    """Return whether it is read as an integer; longer ones are read as decimals."""
    return type(value) is int and -(2**63) <= value < 2**64


def _refuse_first(value: Any, shape: list[int], dtype: str) -> NoReturn:
    """Raise the error of the first value that does not fit into the shape."""
    for level in range(len(shape)):
        if type(value) is not list:
            refuse(
                f"JSON Value: {quote(value)} found at incorrect level: {level + 1} in "
                f"the JSON DOM. Expected at level: {len(shape)}"
            )
        if len(value) != shape[level]:
            refuse(
                f"Encountered list at unexpected size: {len(value)} at level: {level} "
                f"expected size: {shape[level]}"
            )
        if not value:
            _refuse_value(value, dtype)
        value = value[first_misfit(value, shape[level + 1 :], dtype)]
    if type(value) is list:
        level = len(shape)
        refuse(f"Encountered list at unexpected level: {level} expected < {level}")
    _refuse_value(value, dtype)


def _refuse_value(value: Any, dtype: str) -> NoReturn:
    kind = type(value)
    if dtype in _LARGEST_EXACT and kind in (int, float):
        _refuse_number(value, dtype)
    if dtype == "string" and kind in (str, dict):
        _bytes(value)
    known = dtype in _LARGEST_EXACT or dtype in _INTEGERS or dtype in ("bool", "string")
    if not known and kind is not dict:
        refuse(
            f"Conversion of JSON Value: {quote(value)} to type: {type_name(dtype)}",
            StatusCode.UNIMPLEMENTED,
        )
    found = {type(None): "Null", bool: str(value), dict: "Object", str: "String"}
    refuse(
        f"JSON Value: {quote(value)} Type: {found.get(kind, 'Number')} is not of "
        f"expected type: {type_name(dtype)}"
    )


def _refuse_number(value: int | float, dtype: str) -> NoReturn:
    try:
        is_too_big = abs(float(value)) == float("inf")
    except OverflowError:
        is_too_big = True
    if is_too_big:
        refuse("JSON Parse error: Number too big to be stored in double.")
    refuse(
        f"Cannot convert JSON value: {quote(value)} to {type_name(dtype)} without "
        "loss of precision."
    )


def _bytes(value: str | dict[str, Any]) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            refuse("JSON Parse error: The surrogate pair in string is invalid.")
    if not is_base64(value):
        refuse(f"JSON Value: {quote(value)} not formatted correctly for base64 data")
    try:
        return pybase64.b64decode(value["b64"], validate=True)
    except ValueError:
        return _bytes_of_loose_base64(value["b64"])


def _bytes_of_loose_base64(text: str) -> bytes:
    digits = "".join(text.split())
    bare = digits.rstrip("=")
    padded = bare + "=" * (-len(bare) % 4)
    try:
        # Padding may be left out, but padding that is present must be correct.
        if digits not in (bare, padded):
            raise binascii.Error
        return pybase64.b64decode(padded, validate=True)
    except ValueError:
        refuse("Unable to base64 decode")
