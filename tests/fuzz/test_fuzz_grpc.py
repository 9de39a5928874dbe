"""Malformed gRPC requests: refused with a code that blames the request.

INTERNAL and UNKNOWN would blame the server. One INTERNAL is right by gRPC's own table
of codes: the bytes are no message of the type, so that no service ever sees them.
"""

import socket

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    predict_pb2,
)

from tests.fuzz.damaged_messages import damaged_messages
from tests.fuzz.mutated_bytes import fuzzing, mutated
from tests.fuzz.server_process import ANSWER_SECONDS
from tests.support.example_model import png
from tests.support.running_grpc import channel_to, predict_request

pytestmark = pytest.mark.slow

PREDICTION = "/tensorflow.serving.PredictionService/"
MODEL = "/tensorflow.serving.ModelService/"
REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"}
UNREADABLE = "Exception deserializing request!"

RIGHT = (
    predict_request({"image_bytes": [png(1, 2, 3), png(4, 5, 6)]}, version=1),
    predict_request(
        {"number": np.array([1, 2], np.int64), "text": [b"a", b"b"]},
        signature="mixed",
        outputs=["third", "text"],
    ),
    predict_request({"values": np.ones(3, np.float32)}, signature="total"),
    predict_request({"images": np.zeros([2, 8, 8, 3], np.uint8)}, signature="tensors"),
)
PREDICTIONS = tuple(request.SerializeToString() for request in RIGHT)


@pytest.fixture(scope="module")
def channel(example_server):
    with channel_to(f"127.0.0.1:{example_server.grpc_port}") as stubs:
        yield stubs.channel


def call(channel, method, data, metadata=None):
    """Send bytes as they are; returns the name of the code, and the details."""
    send = channel.unary_unary(method, lambda data: data, lambda data: data)
    try:
        send(data, timeout=ANSWER_SECONDS, metadata=metadata, wait_for_ready=True)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


def is_refused(code, details, message, data, codes=REFUSALS):
    """Whether the request was refused; fails if it was for the wrong reason."""
    try:
        message.FromString(data)
    except Exception:  # the library for messages does not say which
        assert (code, details) == ("INTERNAL", UNREADABLE)
        return True
    assert code == "OK" or code in codes, (code, details)
    return code != "OK"


def test_damaged_predict_requests_are_refused(example_server, channel, examples):
    refused, read = set(), set()

    @fuzzing(examples)
    @given(mutated(PREDICTIONS) | damaged_messages(PREDICTIONS))
    def send(data):
        example_server.revive()
        code, details = call(channel, f"{PREDICTION}Predict", data)
        codes = REFUSALS | {"RESOURCE_EXHAUSTED"}
        if is_refused(code, details, predict_pb2.PredictRequest, data, codes):
            refused.add(data)
            if code != "INTERNAL":
                read.add(data)
        example_server.check_alive(data)

    send()
    example_server.check_good_request()
    assert len(refused) >= examples / 2
    assert len(read) >= examples / 8


SIZES = st.sampled_from(
    [0, 1, 2, 3, 7, -1, -(2**63), 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 10**6]
)
FIELDS = (
    *("float_val", "double_val", "int_val", "string_val", "int64_val", "bool_val"),
    *("half_val", "uint32_val", "uint64_val", "scomplex_val", "dcomplex_val"),
)


@st.composite
def wrong_tensors(draw):
    """Tensors whose type, shape and values disagree, most of the time."""
    dtype = draw(
        st.one_of(
            st.sampled_from([1, 3, 4, 7, 9, 10, 19]),
            st.integers(-1, 35),
            st.sampled_from([101, 107, 120, 1000, 2**31 - 1, -(2**31)]),
        )
    )
    proto = tensor_pb2.TensorProto(dtype=dtype)
    ranks = st.one_of(st.integers(0, 4), st.sampled_from([31, 32, 33, 254, 255, 3000]))
    rank = draw(ranks)
    if rank > 4:
        size = draw(SIZES)
        for _ in range(rank):
            proto.tensor_shape.dim.add(size=size)
    else:
        for _ in range(rank):
            proto.tensor_shape.dim.add(size=draw(SIZES))
    if draw(st.integers(0, 9)) == 0:
        proto.tensor_shape.unknown_rank = True
    if draw(st.booleans()):
        proto.tensor_content = draw(
            st.sampled_from([b"\0", b"\0" * 4, b"\0" * 16, b"\xff" * 10, b"\0" * 5000])
        )
    for field in draw(st.lists(st.sampled_from(FIELDS), max_size=2)):
        count = draw(st.sampled_from([1, 1, 2, 3, 7, 1000]))
        value = draw(st.sampled_from([0, 1]))
        if field == "string_val":
            value = draw(st.sampled_from([b"", b"x", png(7, 8, 9), b"y" * 100_000]))
        getattr(proto, field).extend(
            [value] * min(count, 3 if field[0] == "s" else count)
        )
    return proto


@st.composite
def wrong_predictions(draw):
    """Requests with wrong tensors under right names, or the other way round."""
    request = predict_pb2.PredictRequest()
    request.CopyFrom(draw(st.sampled_from(RIGHT)))
    aliases = sorted(request.inputs)
    alias = draw(st.sampled_from(aliases))
    kind = draw(
        st.sampled_from(["tensor"] * 6 + ["name", "signature", "outputs", "spec"])
    )
    odd = st.sampled_from(
        ["", "é\0", "x", "n" * 100_000, "../..", "%s%n", "\U0010ffff"]
    )
    if kind == "tensor":
        request.inputs[alias].CopyFrom(draw(wrong_tensors()))
    elif kind == "name":
        request.inputs[draw(odd)].CopyFrom(request.inputs[alias])
        if draw(st.booleans()):
            del request.inputs[alias]
    elif kind == "signature":
        request.model_spec.signature_name = draw(odd)
    elif kind == "outputs":
        request.output_filter.extend(draw(st.lists(odd, min_size=1, max_size=3)))
    else:
        spec = request.model_spec
        spec.name = draw(odd)
        if draw(st.booleans()):
            spec.name = "example"
            spec.version.value = draw(st.sampled_from([0, -1, 2, 2**63 - 1, -(2**63)]))
        elif draw(st.booleans()):
            spec.version_label = draw(odd)
    return request


def huge(sizes, **values):
    proto = tensor_pb2.TensorProto(dtype=7, **values)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    return predict_pb2.PredictRequest(
        model_spec={"name": "example"}, inputs={"image_bytes": proto}
    )


def test_wrong_tensors_are_refused(example_server, channel, examples):
    refused = set()

    @fuzzing(examples)
    @given(wrong_predictions())
    @example(huge([2**62], string_val=[b"x"]))
    @example(huge([2**32, 2**32], string_val=[b"x"]))
    @example(huge([10**6], string_val=[b"x" * 1000]))
    @example(huge([10**6], tensor_content=b"\0"))
    @example(huge([2**62, 0], string_val=[]))
    def send(request):
        example_server.revive()
        data = request.SerializeToString()
        code, details = call(channel, f"{PREDICTION}Predict", data)
        codes = REFUSALS | {"RESOURCE_EXHAUSTED"}
        if is_refused(code, details, predict_pb2.PredictRequest, data, codes):
            refused.add(data)
        example_server.check_alive(request)

    send()
    example_server.check_good_request()
    assert len(refused) >= examples / 2


STATUS = get_model_status_pb2.GetModelStatusRequest(
    model_spec={"name": "example", "version": {"value": 1}}
)
METADATA = get_model_metadata_pb2.GetModelMetadataRequest(
    model_spec={"name": "example"}, metadata_field=["signature_def"]
)
RELOAD = model_management_pb2.ReloadConfigRequest()
RELOAD.config.custom_model_config.type_url = "x"
OTHERS = {
    f"{MODEL}GetModelStatus": STATUS,
    f"{PREDICTION}GetModelMetadata": METADATA,
    f"{MODEL}HandleReloadConfigRequest": RELOAD,
    f"{PREDICTION}Classify": RIGHT[0],
    f"{PREDICTION}Regress": RIGHT[0],
    f"{PREDICTION}MultiInference": RIGHT[0],
}


@st.composite
def damaged_calls(draw):
    method = draw(st.sampled_from(sorted(OTHERS)))
    originals = (OTHERS[method].SerializeToString(),)
    data = draw(mutated(originals) | damaged_messages(originals))
    name = draw(st.sampled_from([method] * 8 + [f"{method}s", "/", "/x/y", "//"]))
    assume(not (name.endswith("ReloadConfigRequest") and lists_models(data)))
    return name, data


def lists_models(data):
    """Return whether a damaged request has become a right one: serve these models."""
    try:
        request = model_management_pb2.ReloadConfigRequest.FromString(data)
    except DecodeError:
        return False
    return request.config.WhichOneof("config") == "model_config_list"


def test_damaged_calls_of_other_methods_are_refused(example_server, channel, examples):
    refused = set()

    @fuzzing(examples)
    @given(damaged_calls())
    def send(sent):
        example_server.revive()
        code, details = call(channel, *sent)
        if code == "INTERNAL":
            assert details == UNREADABLE
        else:
            assert code == "OK" or code in REFUSALS, (code, details)
        if code != "OK":
            refused.add(sent)
        example_server.check_alive(sent)

    send()
    example_server.check_good_request()
    assert len(refused) >= examples / 2


@pytest.mark.parametrize(
    "metadata",
    [
        [("x-request-id", "a" * 4000)],
        [("x-request-id-bin", bytes(range(256)))],
        [("authorization", "Bearer")],
        [("authorization", "Bearer \x21")],
        [(f"x-{number}", "1") for number in range(100)],
        [("grpc-timeout", "0n")],
        [("grpc-encoding", "wonders")],
        [("x", "1"), ("x", "2"), ("x-request-id", "a"), ("x-request-id", "b")],
    ],
)
def test_odd_metadata_is_answered(example_server, channel, metadata):
    code, _ = call(channel, f"{PREDICTION}Predict", PREDICTIONS[2], metadata)
    assert code in {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"}
    example_server.check_good_request()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
HEADERS = b"\0\0\x0b\x01\x04\0\0\0\x01\x82\x86\x84\x41\x83\x08\x9d\x5c\x0b\x81\x70"


def test_damaged_frames_of_http2_end_their_own_connection_only(
    example_server, channel, examples
):
    @fuzzing(examples)
    @given(mutated((PREFACE + SETTINGS + HEADERS, SETTINGS + HEADERS)))
    @example(b"GET / HTTP/1.1\r\n\r\n")
    @example(PREFACE + b"\xff\xff\xff\x00\x00\0\0\0\x01")
    def send(data):
        example_server.revive()
        address = ("127.0.0.1", example_server.grpc_port)
        with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(2**16):
                    pass
            except ConnectionError:
                pass
        example_server.check_alive(data)

    send()
    assert call(channel, f"{PREDICTION}Predict", PREDICTIONS[2])[0] == "OK"
    example_server.check_good_request()


def test_tensor_of_a_million_repeated_strings_takes_no_memory(example_server, channel):
    # 60 kB that TensorFlow would make 60 GB of.
    request = huge([10**6], string_val=[b"x" * 60_000])
    code, _ = call(channel, f"{PREDICTION}Predict", request.SerializeToString())
    assert code == "RESOURCE_EXHAUSTED"
    example_server.check_alive(request)


@pytest.mark.parametrize("sizes", [[2**62, 0], [0, 2**62], [2**32, 2**32, 0]])
def test_sizes_that_overflow_beside_a_zero_are_refused(example_server, channel, sizes):
    request = huge(sizes)
    code, details = call(channel, f"{PREDICTION}Predict", request.SerializeToString())
    assert code == "INVALID_ARGUMENT"
    assert details == "tensor parsing error: image_bytes"
