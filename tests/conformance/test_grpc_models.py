"""The other calls over gRPC. Oracle: TF Serving's protos, and the source of 2.20."""

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    regression_pb2,
)

from tests.conformance.messages import says
from tests.support.running_grpc import refusal
from tests.support.served import not_found

AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE


def metadata_request(name, *fields, version=None, label=None):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    if label is not None:
        request.model_spec.version_label = label
    return request


def status_request(name, version=None, label=None):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    if label is not None:
        request.model_spec.version_label = label
    return request


class TestMetadata:
    def test_signatures_are_those_of_an_embedder(self, stubs, target):
        request = metadata_request(target.model, "signature_def")
        response = stubs.prediction.GetModelMetadata(request, timeout=60)
        assert response.model_spec.name == target.model
        assert response.model_spec.version.value == target.version
        assert list(response.metadata) == ["signature_def"]
        definitions = get_model_metadata_pb2.SignatureDefMap()
        assert response.metadata["signature_def"].Unpack(definitions)
        signature = definitions.signature_def["serving_default"]
        assert signature.inputs["image_bytes"].dtype == tf.string.as_datatype_enum
        sizes = [dim.size for dim in signature.outputs["embedding"].tensor_shape.dim]
        assert sizes == [-1, target.dimension]

    def test_version_that_is_named_answers(self, stubs, target):
        request = metadata_request(
            target.model, "signature_def", version=target.version
        )
        response = stubs.prediction.GetModelMetadata(request, timeout=60)
        assert response.model_spec.version.value == target.version

    def test_label_answers_as_its_version(self, stubs, target, label):
        request = metadata_request(target.model, "signature_def", label=label)
        response = stubs.prediction.GetModelMetadata(request, timeout=60)
        assert response.model_spec.version.value == target.labeled_version

    @pytest.mark.parametrize(
        ("request_", "code", "text"),
        [
            (
                get_model_metadata_pb2.GetModelMetadataRequest(),
                "INVALID_ARGUMENT",
                "Missing ModelSpec",
            ),
            (
                metadata_request("no-such-model"),
                "INVALID_ARGUMENT",
                "GetModelMetadataRequest must specify at least one metadata_field",
            ),
            (
                metadata_request("no-such-model", "assets"),
                "INVALID_ARGUMENT",
                "Metadata field %s is not supportedassets",
            ),
            (
                metadata_request("no-such-model", "signature_def"),
                "NOT_FOUND",
                not_found("no-such-model"),
            ),
        ],
        ids=["model", "field", "other field", "name"],
    )
    def test_other_requests_are_refused(self, stubs, target, request_, code, text):
        found, details = refusal(stubs.prediction.GetModelMetadata, request_)
        assert found == code
        assert says(target, details, text)


class TestOtherKinds:
    @pytest.mark.parametrize(
        ("method", "kind", "word", "name"),
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
    def test_embedder_neither_classifies_nor_regresses(
        self, stubs, target, method, kind, word, name
    ):
        call = getattr(stubs.prediction, method)
        request = kind()
        code, details = refusal(call, request)
        assert (code, "Missing ModelSpec" in details) == ("INVALID_ARGUMENT", True)
        request.model_spec.name = target.model
        request.input.example_list.examples.add()
        code, details = refusal(call, request)
        assert code == "INVALID_ARGUMENT"
        wanted = (
            f"Expected {name} signature method_name to be tensorflow/serving/{word}. "
            "Was: tensorflow/serving/predict"
        )
        assert says(target, details, wanted)
        request.model_spec.signature_name = "none"
        code, details = refusal(call, request)
        assert code == "INVALID_ARGUMENT"
        if target.is_own:
            assert details == "No signature was found with the name: none"
        request.model_spec.name = "no-such-model"
        assert refusal(call, request)[0] == "NOT_FOUND"

    def test_several_inferences_at_once_are_refused(self, stubs, target):
        call = stubs.prediction.MultiInference
        request = inference_pb2.MultiInferenceRequest()
        assert refusal(call, request)[0] == "INVALID_ARGUMENT"
        request.input.example_list.examples.add()
        task = request.tasks.add(method_name="tensorflow/serving/predict")
        task.model_spec.name = target.model
        code, details = refusal(call, request)
        assert code == "UNIMPLEMENTED"
        wanted = "Unsupported signature method_name: tensorflow/serving/predict"
        assert says(target, details, wanted)
        task.method_name = "tensorflow/serving/regress"
        code, details = refusal(call, request)
        assert code == "INVALID_ARGUMENT"
        assert "Expected regression signature method_name" in details
        if target.is_own:
            task.model_spec.signature_name = "none"
            assert refusal(call, request) == (
                "INVALID_ARGUMENT",
                "Requested signature not found in model graph: none",
            )


def statuses(stubs, request):
    response = stubs.model.GetModelStatus(request, timeout=60)
    return {entry.version: entry for entry in response.model_version_status}


class TestStatus:
    def test_status_lists_the_versions_of_the_model(self, stubs, target):
        entry = statuses(stubs, status_request(target.model))[target.version]
        assert entry.state == AVAILABLE
        assert entry.status.error_code == 0
        assert entry.status.error_message == ""

    def test_status_of_a_version_is_that_one(self, stubs, target):
        found = statuses(stubs, status_request(target.model, target.version))
        assert list(found) == [target.version]

    def test_status_of_a_label_is_known(self, stubs, target, label):
        """TF Serving looks at the version alone, and lists all of them."""
        found = statuses(stubs, status_request(target.model, label=label))
        assert target.labeled_version in found

    @pytest.mark.parametrize("version", [None, 987654321])
    def test_status_of_what_is_not_there_is_not_found(self, stubs, target, version):
        name = "no-such-model" if version is None else target.model
        request = status_request(name, version)
        code, details = refusal(stubs.model.GetModelStatus, request)
        assert code == "NOT_FOUND"
        assert details == (
            "Could not find any versions of model no-such-model"
            if version is None
            else f"Could not find version 987654321 of model {name}"
        )

    def test_status_without_a_model_is_refused(self, stubs):
        request = get_model_status_pb2.GetModelStatusRequest()
        code, details = refusal(stubs.model.GetModelStatus, request)
        assert code == "INVALID_ARGUMENT"
        assert "Missing ModelSpec" in details


class TestReload:
    """Refusals alone: what a server takes would change what it serves."""

    @pytest.mark.parametrize("kind", ["no list", "twice", "relative path"])
    def test_configuration_that_cannot_be_is_refused_and_changes_nothing(
        self, stubs, target, kind
    ):
        before = statuses(stubs, status_request(target.model))
        request = model_management_pb2.ReloadConfigRequest()
        models = request.config.model_config_list.config
        if kind == "no list":
            request.config.ClearField("model_config_list")
            wanted = "Only ModelConfigList is currently supported"
        elif kind == "twice":
            for _ in range(2):
                models.add(
                    name=target.model,
                    base_path="/no/such/folder",
                    model_platform="tensorflow",
                )
            wanted = target.model
        else:
            models.add(
                name=target.model,
                base_path="no/such/folder",
                model_platform="tensorflow",
            )
            wanted = target.model
        call = stubs.model.HandleReloadConfigRequest
        code, details = refusal(call, request)
        assert code == "INVALID_ARGUMENT"
        assert wanted in details
        assert statuses(stubs, status_request(target.model)) == before


class TestHealth:
    @pytest.fixture(autouse=True)
    def _offered(self, stubs, target):
        """TF Serving has it with --enable_grpc_healthcheck_service alone."""
        try:
            stubs.health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED or target.is_own:
                raise
            pytest.skip("the server has no health service")

    def test_server_with_its_models_is_healthy(self, stubs):
        reply = stubs.health.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING

    def test_unknown_service_is_not_found(self, stubs):
        request = health_pb2.HealthCheckRequest(service="no.such.Service")
        assert refusal(stubs.health.Check, request)[0] == "NOT_FOUND"


def test_unknown_method_is_unimplemented(stubs):
    method = "/tensorflow.serving.PredictionService/NoSuchMethod"
    assert refusal(stubs.channel.unary_unary(method), b"")[0] == "UNIMPLEMENTED"
