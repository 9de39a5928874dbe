"""Calls that the conformance suite cannot make of any server, by the real stubs.

Oracle: the C++ source of TF Serving 2.20 for codes and texts; numbers by hand.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
)

from serving.endpoint.models.servable import Servable
from serving.web.status import StatusCode, StatusError
from tests.serving.endpoint.test_tensor_proto import ARRAYS
from tests.support.example_model import png
from tests.support.running_grpc import predict_request, refusal, running_grpc
from tests.support.served import not_found

MAX_MESSAGE_BYTES = 2_000_000


class _Identities(tf.Module):
    """Returns each tensor as it came, whatever its dtype and shape."""


@pytest.fixture(scope="module")
def servables(example_servables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
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
    identities = Servable("identities", 1, folder / "identities" / "1")
    return [*example_servables, identities]


@pytest.fixture(scope="module")
def stubs(servables):
    with running_grpc(servables, max_message_bytes=MAX_MESSAGE_BYTES) as opened:
        yield opened


def refused(stubs, inputs, **options):
    return refusal(stubs.prediction.Predict, predict_request(inputs, **options))


class TestPredict:
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


class TestRefusals:
    def test_wrong_dtype_of_a_second_input(self, stubs):
        inputs = {"number": np.array([1]), "text": np.array([1])}
        assert refused(stubs, inputs, signature="mixed") == (
            "INVALID_ARGUMENT",
            "Expects arg[1] to be string but int64 is provided",
        )

    @pytest.mark.parametrize("kind", ["negative size", "short content"])
    def test_tensor_that_is_none(self, stubs, kind):
        request = predict_request({"values": np.ones(3, np.float32)}, signature="total")
        proto = request.inputs["values"]
        if kind == "negative size":
            proto.tensor_shape.dim[0].size = -1
        else:
            proto.tensor_content = b"abc"
        assert refusal(stubs.prediction.Predict, request) == (
            "INVALID_ARGUMENT",
            "tensor parsing error: values",
        )

    def test_first_of_several_bad_images_is_named(self, stubs):
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
        assert details.startswith(not_found("éé").removesuffix(")"))
        assert len(details) == 500


class TestOtherCalls:
    def test_signatures_are_those_of_the_model(self, stubs, servables):
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            metadata_field=["signature_def"]
        )
        request.model_spec.name = "example"
        response = stubs.prediction.GetModelMetadata(request)
        definitions = get_model_metadata_pb2.SignatureDefMap()
        assert response.metadata["signature_def"].Unpack(definitions)
        assert dict(definitions.signature_def) == servables[1].signature_defs

    def test_status_lists_all_versions_the_newest_first(self, stubs):
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "example"
        found = stubs.model.GetModelStatus(request).model_version_status
        assert [entry.version for entry in found] == [3, 2]

    def test_reload_hands_the_models_on(self, servables):
        asked = []
        with running_grpc(servables, reload=asked.append) as stubs:
            request = model_management_pb2.ReloadConfigRequest()
            request.config.model_config_list.config.add(name="x", base_path="/models/x")
            response = stubs.model.HandleReloadConfigRequest(request)
        assert asked == [request.config]
        assert (response.status.error_code, response.status.error_message) == (0, "")

    def test_reload_that_fails_has_code_and_text(self, servables):
        def fail(config):
            raise StatusError(StatusCode.NOT_FOUND, "no such folder")

        with running_grpc(servables, reload=fail) as stubs:
            request = model_management_pb2.ReloadConfigRequest()
            request.config.model_config_list.SetInParent()
            assert refusal(stubs.model.HandleReloadConfigRequest, request) == (
                "NOT_FOUND",
                "no such folder",
            )
