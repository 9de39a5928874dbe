"""Oracle: TensorFlow's own reading of its tensors."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from serving.client.tensors import to_array
from serving.client.wire import DTYPES, message_class

READ = sorted(DTYPES.keys() - {"DT_INVALID", "DT_STRING"})


def ours(proto):
    """Bring a message of TensorFlow over the wire."""
    return message_class("TensorProto").FromString(proto.SerializeToString())


def values_of(name):
    dtype = tf.as_dtype(types_pb2.DataType.Value(name))
    values = np.array([[0, 1, 2], [3, 100, 7]]).astype(dtype.as_numpy_dtype)
    return values * values.dtype.type(1 + 2j) if dtype.is_complex else values


@pytest.mark.parametrize("name", READ)
def test_contents_of_every_dtype_are_read(name):
    values = values_of(name)
    dtype = types_pb2.DataType.Value(name)
    content = values.tobytes()
    proto = tensor_pb2.TensorProto(dtype=dtype, tensor_content=content)
    for size in values.shape:
        proto.tensor_shape.dim.add(size=size)
    read = to_array(ours(proto))
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("count", [6, 2, 0])
def test_fields_of_every_dtype_are_read_and_filled_as_tensorflow_does(name, count):
    values = values_of(name)
    dtype = types_pb2.DataType.Value(name)
    proto = tensor_pb2.TensorProto(dtype=dtype)
    flat = values.ravel()[:count]
    if name in ("DT_HALF", "DT_BFLOAT16"):
        proto.half_val.extend(flat.view(np.uint16).tolist())
    elif name == "DT_COMPLEX64":
        proto.scomplex_val.extend(flat.view(np.float32).tolist())
    elif name == "DT_COMPLEX128":
        proto.dcomplex_val.extend(flat.view(np.float64).tolist())
    else:
        field = {"DT_FLOAT": "float_val", "DT_DOUBLE": "double_val"}.get(name)
        own = f"{values.dtype.name}_val"
        field = field or (own if hasattr(proto, own) else "int_val")
        getattr(proto, field).extend(flat.tolist())
    for size in values.shape:
        proto.tensor_shape.dim.add(size=size)
    read = to_array(ours(proto))
    expected = tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(dtype)).numpy()
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize(
    "values", [[[b"a", b"\xff"]], b"one", np.zeros((0, 3), object)]
)
def test_strings_are_read(values):
    proto = tf.make_tensor_proto(values, tf.string)
    expected = np.array(values, object)
    read = to_array(ours(proto))
    assert read.shape == expected.shape
    assert read.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dtype": 1, "float_val": [1, 2, 3]}, r"3 values are not of the shape \[2\]"),
        ({"dtype": 20}, "unknown number 20"),
        ({"dtype": 0}, "unknown number 0"),
        ({"dtype": 7, "tensor_content": b"\1a"}, "must be in `string_val`"),
        ({"dtype": 7}, "no strings"),
        ({"dtype": 1, "tensor_content": b"abc"}, "multiple of element size"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(fields, reason):
    proto = message_class("TensorProto")(**fields)
    proto.tensor_shape.dim.add(size=2)
    with pytest.raises(ValueError, match=reason):
        to_array(proto)


@pytest.mark.parametrize("sizes", [[-1], [2**40], [2**20, 2**20]])
def test_a_shape_that_a_few_bytes_stand_for_is_refused(sizes):
    proto = message_class("TensorProto")(dtype=1, float_val=[1])
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    with pytest.raises(ValueError, match="shape"):
        to_array(proto)
