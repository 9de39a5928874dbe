"""The services of TF Serving's gRPC protocol, for models in this process.

Codes, texts and the order of the checks are those of TF Serving 2.20, so that a client
sees no difference. TensorFlow is imported when the services are made.
"""

import functools
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import grpc

from serving.access import TokenAccess
from serving.models.info import metadata_response
from serving.models.servable import (
    DEFAULT_SIGNATURE,
    Servable,
    ServableError,
    StatusCode,
    refuse,
)
from serving.models.served import ServedModels
from serving.predictor import Predictor
from serving.request_log import request_id
from serving.request_observer import Observed, RequestObserver
from serving.rpc.gate import CallGate
from serving.rpc.models import lease, status
from serving.rpc.predict import predict

__all__ = ["ServiceCore", "add_services"]

_LONGEST_DETAILS = 1000
"""Details travel in a header, and clients refuse headers of more than 8 KiB."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_METHOD = "tensorflow/serving/"
_KINDS = {"classify": "classification", "regress": "regression"}
_FAILURES = (StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DATA_LOSS)

_Method = Callable[[Any, Any, Observed], Any]
_Entrance = Callable[[], AbstractContextManager[None]]

_log = logging.getLogger(__name__)


class ServiceCore:
    """Answers each call; knows nothing of servers and sockets.

    Args:
        models: What is served.
        predictor: Runs the predictions, of this and other protocols together.
        reload: Takes a `ModelServerConfig` and makes it what is served.
        max_unpacked_bytes: Memory that the tensors of one request may take.
    """

    def __init__(
        self,
        models: ServedModels,
        predictor: Predictor,
        reload: Callable[[Any], None],
        max_unpacked_bytes: int,
    ) -> None:
        self._models = models
        self._predictor = predictor
        self._reload = reload
        self._max_unpacked_bytes = max_unpacked_bytes

    def predict(self, request: Any, call: Any, observed: Observed) -> Any:
        """Answer a `PredictRequest`."""
        with lease(self._models, request, observed) as servable:
            return predict(
                servable,
                request,
                run=lambda key, inputs: self._predictor.submit(
                    servable, key, inputs, call
                ).result(),
                max_unpacked_bytes=self._max_unpacked_bytes,
            )

    def model_metadata(self, request: Any, call: Any, observed: Observed) -> Any:
        """Answer a `GetModelMetadataRequest`."""
        if not request.HasField("model_spec"):
            refuse("Missing ModelSpec")
        if not request.metadata_field:
            refuse("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                # TF Serving prints the name behind its format, not into it.
                refuse(f"Metadata field %s is not supported{field}")
        with lease(self._models, request, observed) as servable:
            return metadata_response(servable)

    def classify(self, request: Any, call: Any, observed: Observed) -> NoReturn:
        """Refuse a `ClassificationRequest`: embedders have no such signature."""
        self._refuse_kind(request, "classify", observed)

    def regress(self, request: Any, call: Any, observed: Observed) -> NoReturn:
        """Refuse a `RegressionRequest`: embedders have no such signature."""
        self._refuse_kind(request, "regress", observed)

    def multi_inference(self, request: Any, call: Any, observed: Observed) -> NoReturn:
        """Refuse a `MultiInferenceRequest`: its first task already cannot be done."""
        if not request.tasks or not request.tasks[0].HasField("model_spec"):
            refuse("ModelSpec has no name specified.")
        task = request.tasks[0]
        with lease(self._models, task, observed) as servable:
            key = task.model_spec.signature_name or DEFAULT_SIGNATURE
            if key not in servable.signature_defs:
                refuse(f"Requested signature not found in model graph: {key}")
            method = task.method_name.removeprefix(_METHOD)
            if method not in _KINDS or method == task.method_name:
                refuse(
                    f"Unsupported signature method_name: {task.method_name}",
                    StatusCode.UNIMPLEMENTED,
                )
            _refuse_signature(servable, key, method)

    def model_status(self, request: Any, call: Any, observed: Observed) -> Any:
        """Answer a `GetModelStatusRequest`."""
        return status(self._models, request, observed)

    def reload_config(self, request: Any, call: Any, observed: Observed) -> Any:
        """Serve the models of a `ReloadConfigRequest` from now on, and no others."""
        from tensorflow_serving.apis import model_management_pb2

        if request.config.WhichOneof("config") != "model_config_list":
            refuse(
                "ServerModelConfig type not supported by HandleReloadConfigRequest."
                " Only ModelConfigList is currently supported"
            )
        self._reload(request.config)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response

    def _refuse_kind(self, request: Any, method: str, observed: Observed) -> NoReturn:
        with lease(self._models, request, observed) as servable:
            key = request.model_spec.signature_name or DEFAULT_SIGNATURE
            if key not in servable.signature_defs:
                refuse(f"No signature was found with the name: {key}")
            _refuse_signature(servable, key, method)


def add_services(
    core: ServiceCore,
    gate: CallGate,
    access: TokenAccess | None,
    observer: RequestObserver,
    server: Any,
) -> None:
    """Register PredictionService and ModelService at a `grpc.Server`.

    Args:
        core: Answers the calls.
        gate: Bounds those of PredictionService. The status of a model is told also
            while the server is busy; both end when the gate is closed.
        access: Checks the bearer token of each call; None lets everybody in.
        observer: Logs and counts the calls.
        server: Has not been started.
    """
    from tensorflow_serving.apis import (
        model_service_pb2_grpc,
        prediction_service_pb2_grpc,
    )

    def answering(method: _Method, name: str, entrance: _Entrance) -> Any:
        @functools.wraps(method)
        def answer(request: Any, call: Any) -> Any:
            metadata = dict(call.invocation_metadata())
            id_ = request_id(metadata.get("x-request-id"))
            call.set_trailing_metadata((("x-request-id", id_),))
            with observer.observe("GRPC", id_, call.peer()) as observed:
                observed.call, observed.request_bytes = name, request.ByteSize()
                try:
                    if access is not None:
                        access.check(metadata.get("authorization"))
                    with entrance():
                        return method(request, call, observed)
                except ServableError as error:
                    if error.code in _FAILURES:
                        _log.error("%s: %s", error.code.name, error.message)
                    observed.status, details = error.code, error.message
                except Exception as error:
                    _log.exception("A call failed.")
                    observed.status = StatusCode.INTERNAL
                    details = f"{type(error).__name__}: {error}"
            if len(details) > _LONGEST_DETAILS:
                details = details[:_LONGEST_DETAILS] + "..."
            call.abort(_CODES[observed.status], details)

        return staticmethod(answer)

    class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
        Predict = answering(core.predict, "predict", gate.enter)
        GetModelMetadata = answering(core.model_metadata, "metadata", gate.enter)
        Classify = answering(core.classify, "classify", gate.enter)
        Regress = answering(core.regress, "regress", gate.enter)
        MultiInference = answering(core.multi_inference, "multi_inference", gate.enter)

    class Model(model_service_pb2_grpc.ModelServiceServicer):
        GetModelStatus = answering(core.model_status, "status", gate.pass_by)
        HandleReloadConfigRequest = answering(
            core.reload_config, "reload", gate.pass_by
        )

    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Prediction(), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Model(), server)


def _refuse_signature(servable: Servable, key: str, method: str) -> NoReturn:
    found = servable.signature_defs[key].method_name
    wanted = f"{_METHOD}{method}"
    if found != wanted:
        refuse(
            f"Expected {_KINDS[method]} signature method_name to be {wanted}. "
            f"Was: {found}"
        )
    refuse(
        f'Signature "{key}" takes tf.train.Example, which this server does not '
        "support. Call Predict.",
        StatusCode.UNIMPLEMENTED,
    )
