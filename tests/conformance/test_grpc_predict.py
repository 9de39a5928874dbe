"""Predict over gRPC. Oracle: TF Serving's documentation, and the source of 2.20."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.conformance.messages import BAD, says
from tests.support.running_grpc import predict_request, refusal
from tests.support.served import not_found


def request_of(target, images, **options):
    return predict_request(
        {"image_bytes": list(images)}, **{"name": target.model, **options}
    )


def embed(stubs, request):
    response = stubs.prediction.Predict(request, timeout=60)
    assert list(response.outputs) == ["embedding"]
    return tf.make_ndarray(response.outputs["embedding"])


@pytest.fixture(scope="module")
def expected(stubs, target, images):
    return embed(stubs, request_of(target, images))


def close(rows, expected):
    np.testing.assert_allclose(rows, expected, atol=1e-5)


class TestPredict:
    def test_images_become_rows_of_unit_length(self, target, expected):
        assert expected.shape == (3, target.dimension)
        assert expected.dtype == np.float32
        close(np.linalg.norm(expected, axis=1), 1)

    def test_values_come_in_the_field_of_their_type(self, stubs, target, images):
        """Also where the server packs them, `make_ndarray` reads them."""
        request = request_of(target, images[:1])
        output = stubs.prediction.Predict(request, timeout=60).outputs["embedding"]
        assert output.dtype == tf.float32.as_datatype_enum
        assert [dim.size for dim in output.tensor_shape.dim] == [1, target.dimension]
        assert len(output.float_val) == target.dimension or output.tensor_content

    def test_reply_names_model_version_and_signature(self, stubs, target, images):
        request = request_of(target, images[:1])
        spec = stubs.prediction.Predict(request, timeout=60).model_spec
        assert spec.name == target.model
        assert spec.version.value == target.version
        assert spec.signature_name == "serving_default"

    def test_version_that_is_named_answers(self, stubs, target, images, expected):
        request = request_of(target, images, version=target.version)
        close(embed(stubs, request), expected)

    def test_label_answers_as_its_version(self, stubs, target, images, expected, label):
        request = request_of(target, images[:1])
        request.model_spec.version_label = label
        response = stubs.prediction.Predict(request, timeout=60)
        version = response.model_spec.version.value
        assert version == target.labeled_version
        same = embed(stubs, request_of(target, images[:1], version=version))
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

    def test_output_that_is_asked_for_comes(self, stubs, target, images, expected):
        request = request_of(target, images, outputs=["embedding"])
        close(embed(stubs, request), expected)


def unnamed(target, images):
    return predict_request({}, name="")


def of_model(**inputs):
    return lambda target, images: predict_request(inputs, name=target.model)


def with_images(**options):
    return lambda target, images: request_of(target, images, **options)


def of_unknown_label(target, images):
    request = request_of(target, images)
    request.model_spec.version_label = "no_such_label"
    return request


def without_dtype(target, images):
    request = request_of(target, images)
    request.inputs["image_bytes"].dtype = 0
    return request


def of_another_rank(target, images):
    inputs = {"images": np.zeros((2, 3), np.uint8)}
    return predict_request(inputs, name=target.model, signature="tensors")


REFUSALS = {
    "no model": (
        lambda target, images: predict_pb2.PredictRequest(),
        "INVALID_ARGUMENT",
        "Missing ModelSpec",
    ),
    "model without name": (
        unnamed,
        "INVALID_ARGUMENT",
        "ModelSpec has no name specified.",
    ),
    "unknown model": (
        with_images(name="no-such-model"),
        "NOT_FOUND",
        not_found("no-such-model"),
    ),
    "unknown version": (
        with_images(version=987654321),
        "NOT_FOUND",
        not_found("{model}", 987654321),
    ),
    "unknown label": (
        of_unknown_label,
        "INVALID_ARGUMENT",
        "Unrecognized servable version label: no_such_label",
    ),
    "unknown signature": (
        with_images(signature="none"),
        "FAILED_PRECONDITION",
        'Serving signature key "none" not found.',
    ),
    "missing input": (
        of_model(),
        "INVALID_ARGUMENT",
        "input size does not match signature: 0!=1 len({{}}) != len({{image_bytes}}). "
        "Sent extra: {{}}. Missing but required: {{image_bytes}}.",
    ),
    "extra input": (
        of_model(image_bytes=[b""], other=[1]),
        "INVALID_ARGUMENT",
        "input size does not match signature: 2!=1 len({{image_bytes,other}}) != "
        "len({{image_bytes}}). Sent extra: {{other}}. Missing but required: {{}}.",
    ),
    "another dtype": (
        of_model(image_bytes=[1.5]),
        "INVALID_ARGUMENT",
        "Expects arg[0] to be string but float is provided",
    ),
    "no dtype": (
        without_dtype,
        "INVALID_ARGUMENT",
        "tensor parsing error: image_bytes",
    ),
    "output named twice": (
        with_images(outputs=["embedding"] * 2),
        "INVALID_ARGUMENT",
        "duplicate output tensor alias: embedding",
    ),
    "unknown output": (
        with_images(outputs=["logits"]),
        "INVALID_ARGUMENT",
        "output tensor alias not found in signature: logits Outputs expected to be in "
        "the set {{embedding}}.",
    ),
}


class TestRefusals:
    @pytest.mark.parametrize("case", REFUSALS)
    def test_request_that_does_not_fit_is_refused(self, stubs, target, images, case):
        make, code, text = REFUSALS[case]
        found, details = refusal(stubs.prediction.Predict, make(target, images))
        assert found == code
        assert says(target, details, text.format(model=target.model))

    def test_input_of_another_name(self, stubs, target, images):
        request = predict_request({"image": images}, name=target.model)
        code, details = refusal(stubs.prediction.Predict, request)
        assert code == "INVALID_ARGUMENT"
        assert details.startswith("Signature input alias: image_bytes(feed name: ")
        assert "not found in request" in details
        if target.is_own:
            assert details == (
                "Signature input alias: image_bytes(feed name: "
                "serving_default_image_bytes:0) not found in request and no default "
                "value provided. Inputs expected to be in the request {image}, or "
                "default input alias set: "
            )

    def test_tensor_of_another_rank(self, stubs, target, images):
        request = of_another_rank(target, images)
        code, details = refusal(stubs.prediction.Predict, request)
        assert code == "INVALID_ARGUMENT"
        if target.is_own:
            size = target.size
            assert details == (
                f'Input "images" must have the shape [?,{size},{size},3] of the '
                "signature. Received: shape [2,3]."
            )

    @pytest.mark.parametrize("bad", BAD)
    def test_bad_image(self, stubs, target, images, bad):
        request = request_of(target, [images[0], BAD[bad]])
        code, details = refusal(stubs.prediction.Predict, request)
        assert code == "INVALID_ARGUMENT"
        assert details
        if target.is_own:
            assert details.startswith('Input "image_bytes", row 1: ')

    @pytest.mark.parametrize(
        "data", [b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x05abc"]
    )
    def test_bytes_that_are_no_message(self, stubs, target, images, data):
        method = "/tensorflow.serving.PredictionService/Predict"
        code, _ = refusal(stubs.channel.unary_unary(method), data, timeout=60)
        assert code == "INTERNAL"
        embed(stubs, request_of(target, images))
