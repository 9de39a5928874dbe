"""The services of TF Serving's gRPC protocol, for models in this process.

Codes, texts and the order of the checks are those of TF Serving 2.20, so that a client
sees no difference. TensorFlow is imported when the services are made.
"""

import functools
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import grpc

from serving.grpc_limits import CallGate, turn
from serving.grpc_models import ServedModels
from serving.grpc_predict import predict
from serving.json_tensor import refuse
from serving.model_info import metadata_response
from serving.servable import (
    DEFAULT_SIGNATURE,
    Servable,
    ServableError,
    StatusCode,
)

__all__ = ["ServiceCore", "add_services"]

_LONGEST_DETAILS = 1000
"""Details travel in a header, and clients refuse headers of more than 8 KiB."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_METHOD = "tensorflow/serving/"
_KINDS = {"classify": "classification", "regress": "regression"}
_FAILURES = (StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DATA_LOSS)

_log = logging.getLogger(__name__)


class ServiceCore:
    """Answers each call; knows nothing of servers and sockets.

    Args:
        models: What is served.
        turns: Bounds the predictions that run at one time.
        max_unpacked_bytes: Memory that the tensors of one request may take.
    """

    def __init__(
        self,
        models: ServedModels,
        turns: threading.Semaphore,
        max_unpacked_bytes: int,
    ) -> None:
        self._models = models
        self._turns = turns
        self._max_unpacked_bytes = max_unpacked_bytes

    def predict(self, request: Any, call: Any) -> Any:
        """Answer a `PredictRequest`."""
        servable = self._models.find(request)
        with turn(self._turns, call):
            return predict(
                servable,
                request,
                max_unpacked_bytes=self._max_unpacked_bytes,
                is_awaited=call.is_active,
            )

    def model_metadata(self, request: Any, call: Any) -> Any:
        """Answer a `GetModelMetadataRequest`."""
        if not request.HasField("model_spec"):
            refuse("Missing ModelSpec")
        if not request.metadata_field:
            refuse("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                # TF Serving prints the name behind its format, not into it.
                refuse(f"Metadata field %s is not supported{field}")
        return metadata_response(self._models.find(request))

    def classify(self, request: Any, call: Any) -> NoReturn:
        """Refuse a `ClassificationRequest`: embedders have no such signature."""
        self._refuse_kind(request, "classify")

    def regress(self, request: Any, call: Any) -> NoReturn:
        """Refuse a `RegressionRequest`: embedders have no such signature."""
        self._refuse_kind(request, "regress")

    def multi_inference(self, request: Any, call: Any) -> NoReturn:
        """Refuse a `MultiInferenceRequest`: its first task already cannot be done."""
        if not request.tasks or not request.tasks[0].HasField("model_spec"):
            refuse("ModelSpec has no name specified.")
        task = request.tasks[0]
        servable = self._models.find(task)
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

    def model_status(self, request: Any, call: Any) -> Any:
        """Answer a `GetModelStatusRequest`."""
        return self._models.status(request)

    def reload_config(self, request: Any, call: Any) -> NoReturn:
        """Refuse a `ReloadConfigRequest`: the models of the process stay."""
        if request.config.WhichOneof("config") != "model_config_list":
            refuse(
                "ServerModelConfig type not supported by HandleReloadConfigRequest."
                " Only ModelConfigList is currently supported"
            )
        refuse(
            "This server cannot change its models while it runs. Start it again with "
            "the wanted --model-name and --model-base-path.",
            StatusCode.UNIMPLEMENTED,
        )

    def _refuse_kind(self, request: Any, method: str) -> NoReturn:
        servable = self._models.find(request)
        key = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if key not in servable.signature_defs:
            refuse(f"No signature was found with the name: {key}")
        _refuse_signature(servable, key, method)


def add_services(core: ServiceCore, gate: CallGate, server: Any) -> None:
    """Register PredictionService and ModelService at a `grpc.Server`.

    Args:
        core: Answers the calls.
        gate: Bounds those of PredictionService. The status of a model is told also
            while the server is busy; both end when the gate is closed.
        server: Has not been started.
    """
    from tensorflow_serving.apis import (
        model_service_pb2_grpc,
        prediction_service_pb2_grpc,
    )

    class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
        Predict = _answering(core.predict, gate.enter)
        GetModelMetadata = _answering(core.model_metadata, gate.enter)
        Classify = _answering(core.classify, gate.enter)
        Regress = _answering(core.regress, gate.enter)
        MultiInference = _answering(core.multi_inference, gate.enter)

    class Model(model_service_pb2_grpc.ModelServiceServicer):
        GetModelStatus = _answering(core.model_status, gate.pass_by)
        HandleReloadConfigRequest = _answering(core.reload_config, gate.pass_by)

    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Prediction(), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Model(), server)


def _answering(
    method: Callable[[Any, Any], Any], entrance: Callable[[], AbstractContextManager]
) -> Any:
    """Make the method of a servicer, which turns errors into status and details."""

    @functools.wraps(method)
    def answer(request: Any, call: Any) -> Any:
        try:
            with entrance():
                return method(request, call)
        except ServableError as error:
            if error.code in _FAILURES:
                _log.error("%s: %s", error.code.name, error.message)
            code, details = _CODES[error.code], error.message
        except Exception as error:
            _log.exception("A call failed.")
            code, details = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        if len(details) > _LONGEST_DETAILS:
            details = details[:_LONGEST_DETAILS] + "..."
        call.abort(code, details)

    return staticmethod(answer)


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
