"""The other calls of both services, with the real stubs and a real SavedModel.

Oracle: the C++ source of TF Serving 2.20 for codes and texts.
"""

import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    regression_pb2,
)

from serving.endpoint.models.servable import Servable
from serving.web.status import StatusCode, StatusError
from tests.support.example_model import write_example_model
from tests.support.running_grpc import refusal, running_grpc


@pytest.fixture(scope="module")
def servables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "3"
    write_example_model(folder)
    return [Servable("example", version, folder) for version in (2, 3)]


@pytest.fixture(scope="module")
def stubs(servables):
    with running_grpc(servables) as opened:
        yield opened


def metadata_request(*fields, name="example", version=None):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    return request


class TestMetadata:
    def test_signatures_are_those_of_the_model(self, stubs, servables):
        response = stubs.prediction.GetModelMetadata(metadata_request("signature_def"))
        assert response.model_spec.name == "example"
        assert response.model_spec.version.value == 3
        assert list(response.metadata) == ["signature_def"]
        definitions = get_model_metadata_pb2.SignatureDefMap()
        assert response.metadata["signature_def"].Unpack(definitions)
        found = dict(definitions.signature_def)
        assert found == servables[1].signature_defs
        info = found["serving_default"].inputs["image_bytes"]
        assert info.dtype == tf.string.as_datatype_enum

    def test_version_that_is_named_answers(self, stubs):
        request = metadata_request("signature_def", version=2)
        response = stubs.prediction.GetModelMetadata(request)
        assert response.model_spec.version.value == 2

    @pytest.mark.parametrize(
        ("request_", "code", "details"),
        [
            (
                get_model_metadata_pb2.GetModelMetadataRequest(),
                "INVALID_ARGUMENT",
                "Missing ModelSpec",
            ),
            (
                metadata_request(),
                "INVALID_ARGUMENT",
                "GetModelMetadataRequest must specify at least one metadata_field",
            ),
            (
                metadata_request("signature_def", "assets"),
                "INVALID_ARGUMENT",
                "Metadata field %s is not supportedassets",
            ),
            (
                metadata_request("signature_def", name="other"),
                "NOT_FOUND",
                "Servable not found for request: Latest(other)",
            ),
        ],
        ids=["model", "field", "other field", "name"],
    )
    def test_other_requests_are_refused(self, stubs, request_, code, details):
        call = stubs.prediction.GetModelMetadata
        assert refusal(call, request_) == (code, details)


class TestOtherKinds:
    @pytest.mark.parametrize(
        ("method", "kind", "word", "message"),
        [
            (
                "Classify",
                classification_pb2.ClassificationRequest,
                "classify",
                "classification",
            ),
            ("Regress", regression_pb2.RegressionRequest, "regress", "regression"),
        ],
    )
    def test_signatures_of_another_kind_are_asked_for(
        self, stubs, method, kind, word, message
    ):
        call = getattr(stubs.prediction, method)
        assert refusal(call, kind()) == ("INVALID_ARGUMENT", "Missing ModelSpec")
        request = kind()
        request.model_spec.name = "example"
        assert refusal(call, request) == (
            "INVALID_ARGUMENT",
            f"Expected {message} signature method_name to be "
            f"tensorflow/serving/{word}. Was: tensorflow/serving/predict",
        )
        request.model_spec.signature_name = "nope"
        assert refusal(call, request) == (
            "INVALID_ARGUMENT",
            "No signature was found with the name: nope",
        )
        request.model_spec.name = "other"
        assert refusal(call, request)[0] == "NOT_FOUND"

    def test_several_inferences_at_once_are_refused_by_their_first_task(self, stubs):
        call = stubs.prediction.MultiInference
        request = inference_pb2.MultiInferenceRequest()
        assert refusal(call, request) == (
            "INVALID_ARGUMENT",
            "ModelSpec has no name specified.",
        )
        task = request.tasks.add(method_name="tensorflow/serving/predict")
        task.model_spec.name = "example"
        assert refusal(call, request) == (
            "UNIMPLEMENTED",
            "Unsupported signature method_name: tensorflow/serving/predict",
        )
        task.method_name = "tensorflow/serving/regress"
        assert refusal(call, request) == (
            "INVALID_ARGUMENT",
            "Expected regression signature method_name to be "
            "tensorflow/serving/regress. Was: tensorflow/serving/predict",
        )
        task.model_spec.signature_name = "nope"
        assert refusal(call, request) == (
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: nope",
        )


def status_request(name="example", version=None):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    return request


class TestModelService:
    def test_status_lists_all_versions_the_newest_first(self, stubs):
        response = stubs.model.GetModelStatus(status_request())
        found = [(s.version, s.state) for s in response.model_version_status]
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        assert found == [(3, available), (2, available)]
        assert all(s.status.error_code == 0 for s in response.model_version_status)

    def test_status_of_a_version_is_that_one(self, stubs):
        response = stubs.model.GetModelStatus(status_request(version=2))
        assert [s.version for s in response.model_version_status] == [2]

    @pytest.mark.parametrize(
        ("request_", "code", "details"),
        [
            (
                get_model_status_pb2.GetModelStatusRequest(),
                "INVALID_ARGUMENT",
                "Missing ModelSpec",
            ),
            (
                status_request("other"),
                "NOT_FOUND",
                "Could not find any versions of model other",
            ),
            (
                status_request(version=9),
                "NOT_FOUND",
                "Could not find version 9 of model example",
            ),
        ],
        ids=["spec", "name", "version"],
    )
    def test_status_of_what_is_not_there(self, stubs, request_, code, details):
        assert refusal(stubs.model.GetModelStatus, request_) == (code, details)

    def test_reload_hands_the_models_on(self, servables):
        asked = []
        with running_grpc(servables, reload=asked.append) as stubs:
            request = model_management_pb2.ReloadConfigRequest()
            request.config.model_config_list.config.add(name="x", base_path="/models/x")
            response = stubs.model.HandleReloadConfigRequest(request)
        assert asked == [request.config]
        assert (response.status.error_code, response.status.error_message) == (0, "")

    def test_reload_without_a_list_of_models_is_refused(self, stubs):
        call = stubs.model.HandleReloadConfigRequest
        assert refusal(call, model_management_pb2.ReloadConfigRequest()) == (
            "INVALID_ARGUMENT",
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported",
        )

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
