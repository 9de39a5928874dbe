"""Tensors of messages against TensorFlow's own conversion, and by hand."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from serving.endpoint.tensor_proto import (
    decode_tensor,
    dtype_of,
    encode_tensor,
    lacks_strings,
    unpacked_bytes,
)
from serving.web.status import StatusCode, StatusError

ARRAYS = [
    np.array([[1.5, -0.0, np.inf], [1e-40, 3, np.nan]], np.float32),
    np.array([1 / 3, -1e300], np.float64),
    np.array([1.5, 65504], np.float16),
    np.array([1.5, -3e38], ml_dtypes.bfloat16),
    np.array([-128, 127], np.int8),
    np.array([-(2**15), 2**15 - 1], np.int16),
    np.array([-(2**31), 2**31 - 1], np.int32),
    np.array([-(2**63), 2**63 - 1], np.int64),
    np.array([0, 255], np.uint8),
    np.array([0, 2**16 - 1], np.uint16),
    np.array([0, 2**32 - 1], np.uint32),
    np.array([0, 2**64 - 1], np.uint64),
    np.array([True, False]),
    np.array([1 + 2j, -3.5j], np.complex64),
    np.array([1 / 3 + 2j, -3.5j], np.complex128),
    np.array([[b"a\x00\xff", b""]], object),
]
arrays = pytest.mark.parametrize("array", ARRAYS, ids=lambda a: a.dtype.name)


def name_of(array):
    return "string" if array.dtype == object else array.dtype.name


@arrays
def test_what_tensorflow_wrote_is_read(array):
    proto = tf.make_tensor_proto(array)
    assert dtype_of(proto) == name_of(array)
    decoded = decode_tensor(proto, name_of(array))
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, array)


@arrays
def test_tensorflow_reads_what_was_written(array):
    read = tf.make_ndarray(encode_tensor(array))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@arrays
def test_replies_have_typed_fields_which_are_read_as_well(array):
    proto = encode_tensor(array)
    assert not proto.tensor_content
    np.testing.assert_array_equal(decode_tensor(proto, name_of(array)), array)


def test_typed_fields_are_those_of_the_protocol():
    assert list(encode_tensor(np.array([1.5], np.float32)).float_val) == [1.5]
    assert list(encode_tensor(np.array([2], np.uint8)).int_val) == [2]
    assert list(encode_tensor(np.array([1], np.float16)).half_val) == [0x3C00]
    assert list(encode_tensor(np.array([1j], np.complex64)).scomplex_val) == [0, 1]


@pytest.mark.parametrize("value", [b"one", np.float32(2)])
def test_scalar_has_no_dimensions(value):
    proto = encode_tensor(value)
    assert proto.HasField("tensor_shape")
    assert len(proto.tensor_shape.dim) == 0
    assert decode_tensor(proto, dtype_of(proto)).shape == ()


def test_empty_array_keeps_its_shape():
    proto = encode_tensor(np.zeros((0, 3), np.float32))
    assert decode_tensor(proto, "float32").shape == (0, 3)


def test_last_value_is_repeated_as_tensorflow_does():
    proto = tf.make_tensor_proto(7.0, shape=[2, 2])
    assert decode_tensor(proto, "float32").tolist() == [[7, 7], [7, 7]]


def test_content_that_does_not_fit_the_shape_is_no_tensor():
    proto = tf.make_tensor_proto(np.arange(4, dtype=np.float32))
    proto.tensor_content = proto.tensor_content[:-1]
    assert decode_tensor(proto, "float32") is None


@pytest.mark.parametrize("number", [0, types_pb2.DT_FLOAT_REF, 99, 10**6, -1])
def test_number_that_names_no_dtype_has_none(number):
    assert dtype_of(tensor_pb2.TensorProto(dtype=number)) is None


class TestSize:
    def test_numbers_take_their_width(self):
        proto = tf.make_tensor_proto(np.zeros((3, 5), np.float64))
        assert unpacked_bytes(proto, "float64") == 3 * 5 * 8

    def test_repeated_values_count(self):
        proto = tf.make_tensor_proto(1.0, shape=[1000, 1000])
        assert unpacked_bytes(proto, "float32") == 4_000_000

    def test_repeated_strings_count(self):
        proto = tf.make_tensor_proto([b"x" * 100])
        proto.tensor_shape.dim[0].size = 50
        assert unpacked_bytes(proto, "string") == 50 * (100 + 32)

    @pytest.mark.parametrize(
        ("values", "size", "lacks"), [(3, 3, False), (1, 2, True), (0, 1, True)]
    )
    def test_fewer_strings_than_elements_are_told(self, values, size, lacks):
        proto = tensor_pb2.TensorProto(string_val=[b"x"] * values)
        proto.tensor_shape.dim.add(size=size)
        assert lacks_strings(proto) == lacks
        proto.tensor_content = b"x"
        assert not lacks_strings(proto)

    @pytest.mark.parametrize("dtype", ["float32", "string"])
    def test_sizes_beyond_64_bits_do_not_wrap(self, dtype):
        proto = tensor_pb2.TensorProto()
        for _ in range(3):
            proto.tensor_shape.dim.add(size=2**62)
        assert unpacked_bytes(proto, dtype) > 2**186

    def test_shape_that_no_tensor_has_is_reported(self):
        proto = tensor_pb2.TensorProto()
        proto.tensor_shape.dim.add(size=-1)
        assert unpacked_bytes(proto, "float32") is None
        proto.tensor_shape.ClearField("dim")
        proto.tensor_shape.unknown_rank = True
        assert unpacked_bytes(proto, "float32") is None

    def test_more_dimensions_than_an_array_has_are_reported(self):
        proto = tensor_pb2.TensorProto()
        for _ in range(33):
            proto.tensor_shape.dim.add(size=1)
        assert unpacked_bytes(proto, "float32") is None


def test_dtype_that_cannot_be_sent_is_refused():
    with pytest.raises(StatusError, match="float8_e5m2 cannot be sent") as caught:
        encode_tensor(np.zeros(1, ml_dtypes.float8_e5m2))
    assert caught.value.code == StatusCode.UNIMPLEMENTED
