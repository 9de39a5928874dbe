"""Oracle: the parts of messages that protobuf writes, counted by hand."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from serving.endpoint.rpc.message_parts import has_more_parts


def request(strings=(), sizes=(), outputs=()):
    """Write a request that has `OTHERS` beside what is given."""
    message = predict_pb2.PredictRequest(output_filter=outputs)
    message.model_spec.name = "demo"
    tensor = message.inputs["image_bytes"]
    tensor.dtype = tf.string.as_datatype_enum
    tensor.tensor_shape.SetInParent()
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    tensor.string_val.extend(strings)
    return message.SerializeToString()


OTHERS = 6  # model, entry, its name, its tensor, type, shape


@pytest.mark.parametrize("text", [b"", b"\x42\x00" * 50, b"x" * 70_000])
def test_each_string_dimension_and_name_counts_once(text):
    for parts, message in (
        (9, request(strings=[text] * 9)),
        (9, request(sizes=[1] * 9)),
        (9, request(outputs=[text.decode()] * 9)),
    ):
        assert not has_more_parts(message, parts + OTHERS)
        assert has_more_parts(message, parts + OTHERS - 1)


@pytest.mark.parametrize("field", ["int_val", "int64_val", "bool_val", "uint64_val"])
def test_packed_numbers_count_by_their_bytes(field):
    message = predict_pb2.PredictRequest()
    getattr(message.inputs["x"], field).extend([1] * 32_000)
    data = message.SerializeToString()
    assert has_more_parts(data, 1000)
    assert not has_more_parts(data, 1010)


def test_floats_and_content_take_no_more_than_they_are():
    message = predict_pb2.PredictRequest()
    message.inputs["x"].float_val.extend([1.0] * 32_000)
    message.inputs["y"].tensor_content = np.zeros(32_000).tobytes()
    assert not has_more_parts(message.SerializeToString(), 10)


def test_messages_that_no_request_needs_count_by_their_bytes():
    message = predict_pb2.PredictRequest()
    variant = message.inputs["x"].variant_val.add()
    for _ in range(1000):
        variant.tensors.add()  # of 2 bytes
    assert has_more_parts(message.SerializeToString(), 900)


@given(st.binary(max_size=300))
def test_any_bytes_are_counted_to_an_end(data):
    assert not has_more_parts(data, 10**6)
