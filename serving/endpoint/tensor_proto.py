"""Convert tensors of TF Serving's gRPC protocol: `TensorProto` to arrays and back.

Requests are read by the rules of TensorFlow's `Tensor::FromProto`, which a fill value
makes generous: a few bytes may represent a tensor of any size. So the size is checked
before a tensor is made. Replies use the typed fields (`float_val`), as TF Serving does
by default, because many clients read these fields and not `tensor_content`.
"""

import math
from typing import Any

import numpy as np

from ..web.status import StatusCode, refuse

_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int8": "int_val",
    "int16": "int_val",
    "int32": "int_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "string": "string_val",
}
_BITS = {"float16": "half_val", "bfloat16": "half_val"}
_PAIRS = {
    "complex64": ("scomplex_val", np.float32),
    "complex128": ("dcomplex_val", np.float64),
}

_FIRST_REFERENCE_TYPE = 100
_MOST_DIMENSIONS = 32
_BYTES_OF_A_STRING = 32
"""What a string takes beside its content: 24 in TensorFlow, 8 for the pointer to it."""


def dtype_of(proto: Any) -> str | None:
    """Return TensorFlow's name of the dtype of a `TensorProto`; None if it has none."""
    import tensorflow as tf

    # Above are references to variables, which no message carries.
    if not 0 < proto.dtype < _FIRST_REFERENCE_TYPE:
        return None
    try:
        return str(tf.as_dtype(proto.dtype).name)
    except TypeError:  # a number that this TensorFlow does not know
        return None


def unpacked_bytes(proto: Any, dtype: str) -> int | None:
    """Return the memory that the tensor of a `TensorProto` takes.

    Where there are fewer values than elements, TensorFlow repeats the last one; these
    count as well.

    Args:
        proto: The tensor, of this dtype.
        dtype: TensorFlow's name of the dtype.

    Returns:
        Bytes; None if the shape is not that of a tensor, or has more than 32
            dimensions.
    """
    import tensorflow as tf

    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        return None
    if len(sizes) > _MOST_DIMENSIONS:
        return None
    # TensorFlow takes such an empty tensor; NumPy, which the array is for, does not.
    if 0 in sizes and math.prod(size for size in sizes if size) * 16 >= 2**63:
        return None
    elements = math.prod(sizes)
    if dtype != "string":
        return elements * int(tf.as_dtype(dtype).size)
    if proto.tensor_content:
        return elements * _BYTES_OF_A_STRING + len(proto.tensor_content)
    content = sum(map(len, proto.string_val))
    if proto.string_val and elements > len(proto.string_val):
        content += len(proto.string_val[-1]) * (elements - len(proto.string_val))
    return elements * _BYTES_OF_A_STRING + content


def lacks_strings(proto: Any) -> bool:
    """Return whether a tensor of strings has fewer values than elements.

    TensorFlow would repeat the last one, so that a message of a hundred bytes stands
    for any number of images, each of which is decoded.

    Args:
        proto: A tensor of dtype string, with a shape whose size has been checked.
    """
    if proto.tensor_content:
        return False  # it has a length for each element
    elements = math.prod(dim.size for dim in proto.tensor_shape.dim)
    return len(proto.string_val) < elements


def decode_tensor(proto: Any, dtype: str) -> np.ndarray | None:
    """Convert a `TensorProto` as TensorFlow does.

    Args:
        proto: The tensor, of this dtype and with a shape whose size has been checked.
        dtype: TensorFlow's name of the dtype.

    Returns:
        The array, strings as objects of type bytes; None if the content does not fit
        the shape.
    """
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    # What clients send nearly always. TensorFlow takes 0.1 ms for it.
    if (
        dtype == "string"
        and not proto.tensor_content
        and len(proto.string_val) == math.prod(shape)
    ):
        array = np.empty(len(proto.string_val), object)
        array[:] = proto.string_val
        return array.reshape(shape)
    import tensorflow as tf

    try:
        value = tf.io.parse_tensor(proto.SerializeToString(), dtype).numpy()
    except tf.errors.OpError:
        return None
    return _array(value)


def encode_tensor(value: Any) -> Any:
    """Convert an array to a `TensorProto` with typed fields.

    Args:
        value: Array of any dtype that a message can carry; strings as objects of type
            bytes.

    Returns:
        The `TensorProto`.

    Raises:
        StatusError: The dtype cannot be sent.
    """
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    array = _array(value)
    dtype = tf.as_dtype("string" if array.dtype == object else array.dtype)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    proto.tensor_shape.SetInParent()
    flat = array.ravel()
    if dtype.name in _FIELDS:
        getattr(proto, _FIELDS[dtype.name]).extend(flat.tolist())
    elif dtype.name in _BITS:
        getattr(proto, _BITS[dtype.name]).extend(flat.view(np.uint16).tolist())
    elif dtype.name in _PAIRS:
        field, part = _PAIRS[dtype.name]
        getattr(proto, field).extend(flat.view(part).tolist())
    else:
        refuse(f"A tensor of {dtype.name} cannot be sent.", StatusCode.UNIMPLEMENTED)
    return proto


def _array(value: Any) -> np.ndarray:
    """TensorFlow's `numpy()` returns a single string as bytes, not as an array."""
    if isinstance(value, bytes):
        array = np.empty((), object)
        array[()] = value
        return array
    return np.asarray(value)
