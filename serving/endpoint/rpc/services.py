"""Answer the services of TF Serving's gRPC protocol, for models in this process.

Codes, texts and the order of the checks are those of TF Serving 2.20, so that a client
sees no difference. TensorFlow is imported when the services are made.
"""

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import numpy as np

from ...web.observer import Observed
from ...web.status import StatusCode, refuse
from ..models.info import metadata_response
from ..models.servable import (
    DEFAULT_SIGNATURE,
    KIND_OF_METHOD,
    METHOD_PREFIX,
    refuse_method,
)
from ..models.served import ServedModels
from ..predict import predict
from ..predictor import Predictor
from .calls import CallRules, Method, method_handler
from .gate import CallGate
from .message import Arrivals
from .models import lease, status

_SHORT_METHODS = ("GetModelMetadata", "Classify", "Regress", "MultiInference")
_LONGEST_OTHER = 2**20


class ServiceCore:
    """Answers each call; knows nothing of servers and sockets.

    Args:
        models: What is served.
        predictor: Runs the predictions, of this and other protocols together.
        reload: Takes a `ModelServerConfig` and makes it what is served.
        max_unpacked_bytes: Memory that the tensors of one request may take.
        timeout_seconds: How long a prediction may take, waiting included.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        models: ServedModels,
        predictor: Predictor,
        reload: Callable[[Any], None],
        max_unpacked_bytes: int,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = models
        self._predictor = predictor
        self._reload = reload
        self._max_unpacked_bytes = max_unpacked_bytes
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    def predict(self, request: Any, call: Any, observed: Observed) -> Any:
        """Answer a `PredictRequest`."""
        waiting = _Waiting(call, self._clock() + self._timeout_seconds, self._clock)
        with lease(self._models, request, observed) as servable:
            return predict(
                servable,
                request,
                run=lambda key, inputs: _result(
                    self._predictor.submit(servable, key, inputs, waiting), waiting
                ),
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
            method = task.method_name.removeprefix(METHOD_PREFIX)
            if method not in KIND_OF_METHOD or method == task.method_name:
                refuse(
                    f"Unsupported signature method_name: {task.method_name}",
                    StatusCode.UNIMPLEMENTED,
                )
            refuse_method(servable, key, method)

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
            refuse_method(servable, key, method)


def add_services(
    core: ServiceCore,
    predictions: tuple[CallGate, Arrivals],
    others: tuple[CallGate, Arrivals],
    rules: CallRules,
    server: Any,
) -> None:
    """Register PredictionService and ModelService at a `grpc.Server`.

    Args:
        core: Answers the calls.
        predictions: Bound those of PredictionService and their messages.
        others: Bound those of ModelService, so that the status of a model is reported
            while the server is busy, too.
        rules: What holds for all calls.
        server: Has not been started.
    """
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        predict_pb2,
        regression_pb2,
    )

    classification = classification_pb2.ClassificationRequest
    metadata = get_model_metadata_pb2.GetModelMetadataRequest
    inference = inference_pb2.MultiInferenceRequest
    status_ = get_model_status_pb2.GetModelStatusRequest
    reload = model_management_pb2.ReloadConfigRequest
    services = {
        "PredictionService": [
            ("Predict", "predict", predict_pb2.PredictRequest, core.predict),
            ("GetModelMetadata", "metadata", metadata, core.model_metadata),
            ("Classify", "classify", classification, core.classify),
            ("Regress", "regress", regression_pb2.RegressionRequest, core.regress),
            ("MultiInference", "multi_inference", inference, core.multi_inference),
        ],
        "ModelService": [
            ("GetModelStatus", "status", status_, core.model_status),
            ("HandleReloadConfigRequest", "reload", reload, core.reload_config),
        ],
    }
    for name, methods in services.items():
        service = f"tensorflow.serving.{name}"
        bounds = predictions if name == "PredictionService" else others
        handlers = {
            method[0]: method_handler(
                service, Method(*method, *bounds, _longest(method[0])), rules
            )
            for method in methods
        }
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, handlers)]
        )


def _longest(method: str) -> int | None:
    return _LONGEST_OTHER if method in _SHORT_METHODS else None


@dataclass(frozen=True)
class _Waiting:
    """Whether the client of a call still waits, for the queue."""

    call: grpc.ServicerContext
    until: float
    clock: Callable[[], float]

    def is_active(self) -> bool:
        return bool(self.call.is_active())

    def time_remaining(self) -> float:
        """Return what is left of the client's time and of the server's."""
        own: float | None = self.call.time_remaining()
        left = self.until - self.clock()
        return left if own is None else min(own, left)


def _result(
    future: Future[dict[str, np.ndarray]], waiting: _Waiting
) -> dict[str, np.ndarray]:
    """Wait for the outputs; a call that ends before its turn waits no longer."""
    if not waiting.call.add_callback(future.cancel):
        future.cancel()
    try:
        return future.result(max(waiting.time_remaining(), 0.0))
    except CancelledError:
        refuse("Cancelled", StatusCode.CANCELLED)
    except TimeoutError:
        future.cancel()
        refuse("Deadline Exceeded", StatusCode.DEADLINE_EXCEEDED)
