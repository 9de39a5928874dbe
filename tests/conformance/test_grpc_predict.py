"""Predict over gRPC. Oracle: TF Serving's documentation, and the source of 2.20."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.conformance.pictures import BAD
from tests.support.running_grpc import predict_request, refusal

pytestmark = pytest.mark.slow


def request_of(target, pictures, **options):
    return predict_request(
        {"image_bytes": list(pictures)}, **{"name": target.model, **options}
    )


def embed(stubs, request):
    response = stubs.prediction.Predict(request, timeout=60)
    assert list(response.outputs) == ["embedding"]
    return tf.make_ndarray(response.outputs["embedding"])


@pytest.fixture(scope="module")
def expected(stubs, target, pictures):
    return embed(stubs, request_of(target, pictures))


def close(rows, expected):
    np.testing.assert_allclose(rows, expected, atol=1e-5)


class TestPredict:
    def test_pictures_become_rows_of_unit_length(self, target, expected):
        assert expected.shape == (3, target.dimension)
        assert expected.dtype == np.float32
        close(np.linalg.norm(expected, axis=1), 1)

    def test_values_come_in_the_field_of_their_type(self, stubs, target, pictures):
        """Also where the server packs them, `make_ndarray` reads them."""
        request = request_of(target, pictures[:1])
        output = stubs.prediction.Predict(request, timeout=60).outputs["embedding"]
        assert output.dtype == tf.float32.as_datatype_enum
        assert [dim.size for dim in output.tensor_shape.dim] == [1, target.dimension]
        assert len(output.float_val) == target.dimension or output.tensor_content

    def test_reply_names_model_version_and_signature(self, stubs, target, pictures):
        request = request_of(target, pictures[:1])
        spec = stubs.prediction.Predict(request, timeout=60).model_spec
        assert spec.name == target.model
        assert spec.version.value == target.version
        assert spec.signature_name == "serving_default"

    def test_version_that_is_named_answers(self, stubs, target, pictures, expected):
        request = request_of(target, pictures, version=target.version)
        close(embed(stubs, request), expected)

    def test_label_answers_as_its_version(
        self, stubs, target, pictures, expected, label
    ):
        request = request_of(target, pictures[:1])
        request.model_spec.version_label = label
        response = stubs.prediction.Predict(request, timeout=60)
        version = response.model_spec.version.value
        assert version == target.labelled_version
        same = embed(stubs, request_of(target, pictures[:1], version=version))
        close(tf.make_ndarray(response.outputs["embedding"]), same)

    def test_signature_that_is_named_takes_tensors(
        self, stubs, target, pixels, expected
    ):
        request = predict_request(
            {"images": pixels}, name=target.model, signature="tensors"
        )
        rows = embed(stubs, request)
        assert rows.shape == expected.shape
        if target.is_squashed:
            close(rows, expected)

    def test_typed_values_are_taken_as_well_as_packed_content(
        self, stubs, target, pixels
    ):
        packed = predict_request(
            {"images": pixels[:1]}, name=target.model, signature="tensors"
        )
        assert packed.inputs["images"].tensor_content
        typed = predict_pb2.PredictRequest()
        typed.CopyFrom(packed)
        typed.inputs["images"].tensor_content = b""
        typed.inputs["images"].int_val.extend(pixels[:1].ravel().tolist())
        close(embed(stubs, typed), embed(stubs, packed))

    def test_output_that_is_asked_for_comes(self, stubs, target, pictures, expected):
        request = request_of(target, pictures, outputs=["embedding"])
        close(embed(stubs, request), expected)


def refused(stubs, request):
    return refusal(stubs.prediction.Predict, request, timeout=60)


class TestRefusals:
    def test_request_without_model(self, stubs):
        code, details = refused(stubs, predict_pb2.PredictRequest())
        assert code == "INVALID_ARGUMENT"
        assert "Missing ModelSpec" in details

    def test_model_without_name(self, stubs):
        code, details = refused(stubs, predict_request({}, name=""))
        assert code == "INVALID_ARGUMENT"
        assert "ModelSpec has no name specified." in details

    def test_unknown_model(self, stubs):
        code, details = refused(stubs, predict_request({}, name="no-such-model"))
        assert code == "NOT_FOUND"
        assert "Servable not found for request: Latest(no-such-model)" in details

    def test_unknown_version(self, stubs, target, pictures):
        request = request_of(target, pictures, version=987654321)
        code, details = refused(stubs, request)
        assert code == "NOT_FOUND"
        wanted = f"Servable not found for request: Specific({target.model}, 987654321)"
        assert wanted in details

    def test_unknown_label(self, stubs, target, pictures):
        request = request_of(target, pictures)
        request.model_spec.version_label = "no_such_label"
        code, details = refused(stubs, request)
        assert code == "INVALID_ARGUMENT"
        assert "Unrecognized servable version label: no_such_label" in details

    def test_unknown_signature(self, stubs, target, pictures):
        request = request_of(target, pictures, signature="none")
        code, details = refused(stubs, request)
        assert code == "FAILED_PRECONDITION"
        assert 'Serving signature key "none" not found.' in details

    def test_missing_input(self, stubs, target):
        code, details = refused(stubs, predict_request({}, name=target.model))
        assert code == "INVALID_ARGUMENT"
        assert "input size does not match signature: 0!=1" in details

    def test_extra_input(self, stubs, target, pictures):
        inputs = {"image_bytes": pictures, "other": [1]}
        code, details = refused(stubs, predict_request(inputs, name=target.model))
        assert code == "INVALID_ARGUMENT"
        assert "input size does not match signature: 2!=1" in details

    def test_input_of_another_name(self, stubs, target, pictures):
        inputs = {"image": pictures}
        code, details = refused(stubs, predict_request(inputs, name=target.model))
        assert code == "INVALID_ARGUMENT"
        assert "image_bytes" in details
        assert "not found in request" in details

    def test_input_of_another_dtype(self, stubs, target):
        inputs = {"image_bytes": [1.5]}
        code, details = refused(stubs, predict_request(inputs, name=target.model))
        assert code == "INVALID_ARGUMENT"
        assert "to be string but float is provided" in details

    def test_tensor_of_another_rank(self, stubs, target):
        request = predict_request(
            {"images": np.zeros((2, 3), np.uint8)},
            name=target.model,
            signature="tensors",
        )
        assert refused(stubs, request)[0] == "INVALID_ARGUMENT"

    def test_tensor_that_is_none(self, stubs, target, pictures):
        request = request_of(target, pictures)
        request.inputs["image_bytes"].dtype = 0
        code, details = refused(stubs, request)
        assert code == "INVALID_ARGUMENT"
        assert "tensor parsing error: image_bytes" in details

    def test_unknown_output(self, stubs, target, pictures):
        request = request_of(target, pictures, outputs=["logits"])
        code, details = refused(stubs, request)
        assert code == "INVALID_ARGUMENT"
        assert "output tensor alias not found in signature: logits" in details
        assert "{embedding}" in details

    def test_output_named_twice(self, stubs, target, pictures):
        request = request_of(target, pictures, outputs=["embedding"] * 2)
        code, details = refused(stubs, request)
        assert code == "INVALID_ARGUMENT"
        assert "duplicate output tensor alias: embedding" in details

    @pytest.mark.parametrize("bad", BAD)
    def test_bad_picture(self, stubs, target, pictures, bad):
        request = request_of(target, [pictures[0], BAD[bad]])
        code, details = refused(stubs, request)
        assert code == "INVALID_ARGUMENT"
        assert details

    def test_bytes_that_are_no_message(self, stubs, target, pictures):
        method = "/tensorflow.serving.PredictionService/Predict"
        code, _ = refusal(stubs.channel.unary_unary(method), b"\xff" * 50, timeout=60)
        assert code == "INTERNAL"
        embed(stubs, request_of(target, pictures))
