"""Read the tensors of TF Serving's gRPC replies without TensorFlow."""

import math
from typing import Any

import numpy as np

from .wire import DTYPES

_STRING = DTYPES["DT_STRING"]

# The field that holds the values where there is no `tensor_content`, and how NumPy
# calls the dtype. Halves are bits in whole numbers, complex numbers are pairs.
_FIELDS = {
    DTYPES[name]: (field, dtype)
    for name, field, dtype in (
        ("DT_FLOAT", "float_val", "float32"),
        ("DT_DOUBLE", "double_val", "float64"),
        ("DT_INT32", "int_val", "int32"),
        ("DT_UINT8", "int_val", "uint8"),
        ("DT_INT16", "int_val", "int16"),
        ("DT_INT8", "int_val", "int8"),
        ("DT_COMPLEX64", "scomplex_val", "complex64"),
        ("DT_INT64", "int64_val", "int64"),
        ("DT_BOOL", "bool_val", "bool"),
        ("DT_BFLOAT16", "half_val", "bfloat16"),
        ("DT_UINT16", "int_val", "uint16"),
        ("DT_COMPLEX128", "dcomplex_val", "complex128"),
        ("DT_HALF", "half_val", "float16"),
        ("DT_UINT32", "uint32_val", "uint32"),
        ("DT_UINT64", "uint64_val", "uint64"),
    )
}
_AS_SENT = {
    "bfloat16": "uint16",
    "float16": "uint16",
    "complex64": "float32",
    "complex128": "float64",
}
_MOST_FILLED = 2**28  # elements


def to_array(proto: Any) -> np.ndarray:
    """Convert a `TensorProto`.

    Args:
        proto: The tensor. Where it has fewer values than elements, the last one stands
            for the rest, as in TensorFlow; none stands for zeros.

    Returns:
        The array, strings as objects of type bytes.

    Raises:
        ValueError: The dtype cannot be read, or the values do not fit the shape.
    """
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise ValueError(f"the shape {sizes} is not known")
    values = _values(proto)
    elements = math.prod(sizes)
    if len(values) > elements or len(values) < elements > _MOST_FILLED:
        raise ValueError(f"{len(values)} values are not of the shape {sizes}")
    if len(values) < elements:
        if proto.dtype == _STRING and not len(values):
            raise ValueError(f"no strings are not of the shape {sizes}")
        if len(values):
            values = np.pad(values, (0, elements - len(values)), "edge")
        else:
            values = np.zeros(elements, values.dtype)
    return values.reshape(sizes)


def _values(proto: Any) -> np.ndarray:
    if proto.dtype == _STRING:
        if proto.tensor_content:
            raise ValueError("strings must be in `string_val`")
        strings = np.empty(len(proto.string_val), object)
        strings[:] = proto.string_val
        return strings
    if proto.dtype not in _FIELDS:
        raise ValueError(f"the dtype has the unknown number {proto.dtype}")
    field, name = _FIELDS[proto.dtype]
    dtype = _dtype(name)
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype.newbyteorder("<"))
    sent = np.array(getattr(proto, field), _AS_SENT.get(name, name))
    return sent.view(dtype) if name in _AS_SENT else sent


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes  # NumPy has none

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
