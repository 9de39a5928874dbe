"""Real Predict calls with the real stubs against a real SavedModel.

Oracle: the C++ source of TF Serving 2.20 for codes and texts; numbers by hand.
"""

import logging
import threading

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.endpoint.models.servable import Servable
from tests.serving.endpoint.test_grpc_tensor import ARRAYS
from tests.support.example_model import png, write_example_model
from tests.support.running_grpc import predict_request, refusal, running_grpc
from tests.support.running_server import running
from tests.support.served import rest_app

MAX_MESSAGE_BYTES = 2_000_000


class _Identities(tf.Module):
    """Returns each tensor as it came, whatever its dtype and shape."""


@pytest.fixture(scope="module")
def servables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_example_model(folder / "example" / "3")
    module = _Identities()
    dtypes = sorted({tf.as_dtype(tf.constant(a).dtype).name for a in ARRAYS})
    module.call = tf.function(
        lambda **inputs: {key: tf.identity(value) for key, value in inputs.items()}
    )
    specs = {f"x_{dtype}": tf.TensorSpec(None, dtype) for dtype in dtypes}
    tf.saved_model.save(
        module,
        str(folder / "identities" / "1"),
        signatures=module.call.get_concrete_function(
            **{key: tf.TensorSpec(s.shape, s.dtype, key) for key, s in specs.items()}
        ),
    )
    return [
        Servable("example", 2, folder / "example" / "3"),
        Servable("example", 3, folder / "example" / "3"),
        Servable("identities", 1, folder / "identities" / "1"),
    ]


@pytest.fixture(scope="module")
def stubs(servables):
    with running_grpc(servables, max_message_bytes=MAX_MESSAGE_BYTES) as opened:
        yield opened


def embed(stubs, *pictures, **options):
    request = predict_request({"image_bytes": list(pictures)}, **options)
    return stubs.prediction.Predict(request, timeout=20)


def refused(stubs, inputs, **options):
    return refusal(stubs.prediction.Predict, predict_request(inputs, **options))


class TestPredict:
    def test_pictures_become_embeddings(self, stubs):
        response = embed(stubs, png(255, 0, 255), png(0, 255, 0))
        assert list(response.outputs) == ["embedding"]
        output = response.outputs["embedding"]
        assert [dim.size for dim in output.tensor_shape.dim] == [2, 4]
        assert list(output.float_val) == [1, 0, 1, 1, 0, 1, 0, 1]

    def test_reply_names_model_version_and_signature(self, stubs):
        spec = embed(stubs, png(0, 0, 0)).model_spec
        assert spec.name == "example"
        assert spec.version.value == 3
        assert spec.signature_name == "serving_default"

    def test_version_that_is_named_answers(self, stubs):
        response = embed(stubs, png(0, 0, 0), version=2)
        assert response.model_spec.version.value == 2

    def test_named_signature_answers_with_several_inputs_and_outputs(self, stubs):
        request = predict_request(
            {"number": np.array([2, -1]), "text": [b"a", b"b"]}, signature="mixed"
        )
        outputs = stubs.prediction.Predict(request).outputs
        assert list(outputs["third"].double_val) == [2 / 3, -1 / 3]
        assert list(outputs["even"].bool_val) == [True, False]
        assert list(outputs["text"].string_val) == [b"A", b"B"]
        assert list(outputs["text_bytes"].string_val) == [b"a", b"b"]

    def test_outputs_that_are_filtered_are_left_out(self, stubs):
        request = predict_request(
            {"number": np.array([2]), "text": [b"a"]},
            signature="mixed",
            outputs=["text", "even"],
        )
        assert set(stubs.prediction.Predict(request).outputs) == {"text", "even"}

    def test_typed_values_are_taken_as_well_as_packed_content(self, stubs):
        request = predict_request({}, signature="total")
        proto = request.inputs["values"]
        proto.dtype = tf.float32.as_datatype_enum
        proto.tensor_shape.dim.add(size=3)
        proto.float_val.extend([1, 2, 4])
        outputs = stubs.prediction.Predict(request).outputs
        assert list(outputs["total"].float_val) == [7]
        assert len(outputs["total"].tensor_shape.dim) == 0

    @pytest.mark.parametrize("scalar", [False, True])
    def test_every_dtype_comes_back_as_it_went(self, stubs, scalar):
        sent = {}
        for array in ARRAYS:
            dtype = "string" if array.dtype == object else array.dtype.name
            sent[f"x_{dtype}"] = array.ravel()[0] if scalar else array
        request = predict_request(sent, name="identities")
        outputs = stubs.prediction.Predict(request).outputs
        assert set(outputs) == set(sent)
        for key, value in sent.items():
            received = tf.make_ndarray(outputs[key])
            assert received.shape == np.shape(value), key
            np.testing.assert_array_equal(received, value, err_msg=key)

    def test_empty_batch_has_an_empty_answer(self, stubs):
        request = predict_request({"image_bytes": np.array([], object)})
        request.inputs["image_bytes"].CopyFrom(
            tf.make_tensor_proto([], dtype=tf.string)
        )
        output = stubs.prediction.Predict(request).outputs["embedding"]
        assert [dim.size for dim in output.tensor_shape.dim] == [0, 4]

    def test_rest_and_grpc_give_the_same_numbers(self, stubs, servables):
        generator = np.random.default_rng(0)
        images = generator.integers(0, 256, (3, 8, 8, 3), np.uint8)
        request = predict_request({"images": images}, signature="tensors")
        output = stubs.prediction.Predict(request).outputs["embedding"]
        with running(rest_app(servables[:2])) as url:
            reply = httpx.post(
                f"{url}/v1/models/example:predict",
                json={"signature_name": "tensors", "instances": images.tolist()},
            )
        rest = np.array(reply.json()["predictions"], np.float32)
        np.testing.assert_array_equal(tf.make_ndarray(output), rest)
        wide = images.astype(np.float64).mean(axis=(1, 2)) / 255
        np.testing.assert_allclose(rest[:, :3], wide, rtol=1e-6)

    def test_concurrent_calls_each_get_their_own_answer(self, stubs):
        reds = range(0, 240, 10)
        received = {}

        def call(red):
            output = embed(stubs, png(red, 0, 0)).outputs["embedding"]
            received[red] = list(output.float_val)

        threads = [threading.Thread(target=call, args=[red]) for red in reds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(received) == list(reds)
        for red, embedding in received.items():
            np.testing.assert_allclose(embedding, [red / 255, 0, 0, 1], rtol=1e-6)


class TestRefusals:
    def test_request_without_model(self, stubs):
        request = predict_pb2.PredictRequest()
        expected = ("INVALID_ARGUMENT", "Missing ModelSpec")
        assert refusal(stubs.prediction.Predict, request) == expected

    def test_model_without_name(self, stubs):
        assert refused(stubs, {}, name="") == (
            "INVALID_ARGUMENT",
            "ModelSpec has no name specified.",
        )

    def test_unknown_model(self, stubs):
        assert refused(stubs, {}, name="other") == (
            "NOT_FOUND",
            "Servable not found for request: Latest(other)",
        )

    def test_unknown_version(self, stubs):
        assert refused(stubs, {}, version=9) == (
            "NOT_FOUND",
            "Servable not found for request: Specific(example, 9)",
        )

    def test_unknown_label(self, stubs):
        request = predict_request({})
        request.model_spec.version_label = "stable"
        assert refusal(stubs.prediction.Predict, request) == (
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: stable",
        )

    def test_unknown_signature(self, stubs):
        assert refused(stubs, {}, signature="nope") == (
            "FAILED_PRECONDITION",
            'Serving signature key "nope" not found.',
        )

    def test_missing_input(self, stubs):
        assert refused(stubs, {"number": [1]}, signature="mixed") == (
            "INVALID_ARGUMENT",
            "input size does not match signature: 1!=2 len({number}) != "
            "len({number,text}). Sent extra: {}. Missing but required: {text}.",
        )

    def test_extra_input(self, stubs):
        inputs = {"image_bytes": [b""], "size": [1]}
        assert refused(stubs, inputs) == (
            "INVALID_ARGUMENT",
            "input size does not match signature: 2!=1 len({image_bytes,size}) != "
            "len({image_bytes}). Sent extra: {size}. Missing but required: {}.",
        )

    def test_input_of_another_name(self, stubs):
        assert refused(stubs, {"image": [b""]}) == (
            "INVALID_ARGUMENT",
            "Signature input alias: image_bytes(feed name: "
            "serving_default_image_bytes:0) not found in request and no default value "
            "provided. Inputs expected to be in the request {image}, or default input "
            "alias set: ",
        )

    def test_wrong_dtype(self, stubs):
        assert refused(stubs, {"image_bytes": [1.5]}) == (
            "INVALID_ARGUMENT",
            "Expects arg[0] to be string but float is provided",
        )

    def test_wrong_dtype_of_a_second_input(self, stubs):
        inputs = {"number": np.array([1]), "text": np.array([1])}
        assert refused(stubs, inputs, signature="mixed") == (
            "INVALID_ARGUMENT",
            "Expects arg[1] to be string but int64 is provided",
        )

    def test_wrong_shape(self, stubs):
        inputs = {"images": np.zeros((1, 8, 9, 3), np.uint8)}
        assert refused(stubs, inputs, signature="tensors") == (
            "INVALID_ARGUMENT",
            'Input "images" must have the shape [?,8,8,3] of the signature. '
            "Received: shape [1,8,9,3].",
        )

    def test_unknown_output(self, stubs):
        inputs = {"number": np.array([1]), "text": [b""]}
        assert refused(stubs, inputs, signature="mixed", outputs=["fourth"]) == (
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature: fourth Outputs expected to be "
            "in the set {even,text,text_bytes,third}.",
        )

    def test_output_named_twice(self, stubs):
        inputs, twice = {"image_bytes": [png(0, 0, 0)]}, ["embedding"] * 2
        assert refused(stubs, inputs, outputs=twice) == (
            "INVALID_ARGUMENT",
            "duplicate output tensor alias: embedding",
        )

    @pytest.mark.parametrize("kind", ["no dtype", "negative size", "short content"])
    def test_tensor_that_is_none(self, stubs, kind):
        request = predict_request({"values": np.ones(3, np.float32)}, signature="total")
        proto = request.inputs["values"]
        if kind == "no dtype":
            proto.dtype = 0
        elif kind == "negative size":
            proto.tensor_shape.dim[0].size = -1
        else:
            proto.tensor_content = b"abc"
        assert refusal(stubs.prediction.Predict, request) == (
            "INVALID_ARGUMENT",
            "tensor parsing error: values",
        )

    @pytest.mark.parametrize("position", [0, 1, 5, 6])
    def test_bad_picture_is_named(self, stubs, position):
        pictures = [png(value, 0, 0) for value in range(7)]
        pictures[position] = b"no picture"
        assert refused(stubs, {"image_bytes": pictures}) == (
            "INVALID_ARGUMENT",
            f'Input "image_bytes", row {position}: Unknown image file format. One of '
            "JPEG, PNG, GIF, BMP, WebP required.",
        )

    def test_first_of_several_bad_pictures_is_named(self, stubs):
        code, details = refused(stubs, {"image_bytes": [png(1, 1, 1), b"", b"x"]})
        assert code == "INVALID_ARGUMENT"
        assert details == 'Input "image_bytes", row 1: Input is empty.'

    def test_failure_inside_the_model_keeps_its_code(self, stubs):
        code, details = refused(stubs, {"packed": [b"no gzip"]}, signature="unpack")
        assert code == "DATA_LOSS"
        assert details

    def test_few_bytes_that_stand_for_a_huge_tensor(self, stubs):
        request = predict_request({"values": [1.0]}, signature="total")
        request.inputs["values"].tensor_shape.dim[0].size = 10**11
        assert refusal(stubs.prediction.Predict, request) == (
            "RESOURCE_EXHAUSTED",
            "The inputs may take at most 2000000 bytes unpacked. Send fewer or smaller "
            "instances.",
        )

    def test_long_message(self, stubs):
        request = predict_request({"image_bytes": [b"x" * MAX_MESSAGE_BYTES]})
        code, details = refusal(stubs.prediction.Predict, request)
        assert code == "RESOURCE_EXHAUSTED"
        assert "larger than max" in details

    def test_long_message_that_was_compressed(self, stubs):
        request = predict_request({"image_bytes": [bytes(20 * MAX_MESSAGE_BYTES)]})
        code, details = refusal(stubs.prediction.Predict, request, compression=2)
        assert code == "RESOURCE_EXHAUSTED"
        assert "larger than max" in details

    def test_long_reply(self, stubs):
        # The text comes once and goes twice.
        inputs = {"number": np.array([1]), "text": [b"x" * 1_200_000]}
        code, details = refused(stubs, inputs, signature="mixed")
        assert code == "RESOURCE_EXHAUSTED"
        assert "larger than max" in details

    def test_message_just_below_the_limit_is_taken(self, stubs):
        values = np.ones(MAX_MESSAGE_BYTES // 4 - 100, np.float32)
        request = predict_request({"values": values}, signature="total")
        output = stubs.prediction.Predict(request).outputs["total"]
        assert list(output.float_val) == [len(values)]

    def test_long_names_are_cut_in_the_error(self, stubs):
        code, details = refused(stubs, {}, name="é" * 100_000)
        assert code == "NOT_FOUND"
        assert details.startswith("Servable not found for request: Latest(éé")
        assert len(details) == 1003

    @pytest.mark.parametrize(
        "data", [b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x05abc"]
    )
    def test_bytes_that_are_no_message(self, stubs, data):
        method = "/tensorflow.serving.PredictionService/Predict"
        code, _ = refusal(stubs.channel.unary_unary(method), data)
        assert code == "INTERNAL"
        assert len(embed(stubs, png(0, 0, 0)).outputs) == 1

    def test_bytes_at_random_are_answered_or_refused(self, stubs, caplog):
        generator = np.random.default_rng(1)
        request = predict_request({"image_bytes": [png(9, 9, 9)]})
        call = stubs.channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict"
        )
        whole = np.frombuffer(request.SerializeToString(), np.uint8)
        codes = set()
        with caplog.at_level(logging.ERROR, "serving"):
            for _ in range(200):
                broken = whole.copy()
                places = generator.integers(0, len(broken), 3)
                broken[places] = generator.integers(0, 256, 3)
                try:
                    call(broken.tobytes(), timeout=20)
                except grpc.RpcError as error:
                    codes.add(error.code().name)
        assert codes <= {
            "INTERNAL",  # what gRPC says of bytes that are no message
            "INVALID_ARGUMENT",
            "NOT_FOUND",
            "FAILED_PRECONDITION",
            "RESOURCE_EXHAUSTED",
        }
        assert "A call failed" not in caplog.text
        assert len(embed(stubs, png(0, 0, 0)).outputs) == 1

    def test_unknown_method_is_unimplemented(self, stubs):
        call = stubs.channel.unary_unary("/tensorflow.serving.PredictionService/Nope")
        assert refusal(call, b"")[0] == "UNIMPLEMENTED"
