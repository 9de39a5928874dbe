"""Limits, health, start and stop of the gRPC server, over a real socket."""

import subprocess
import sys
import threading
import time

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.models.servable import Signature, TensorSpec
from serving.models.served import ServedModels, VersionState, VersionStatus
from serving.sockets import PortInUseError, open_socket
from tests.running_grpc import (
    channel_to,
    grpc_server,
    predict_request,
    refusal,
    running_grpc,
)
from tests.running_server import running
from tests.served import predictor, rest_app

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
REQUEST = predict_request({"x": [1.0]}, name="slow")


class _Slow:
    """A model that answers when the test lets it."""

    name = "slow"
    version = 1

    def __init__(self):
        spec = TensorSpec("float32", (None,))
        kind = "tensorflow/serving/predict"
        self.signatures = {"serving_default": Signature(kind, {"x": spec}, {"y": spec})}
        definition = meta_graph_pb2.SignatureDef(method_name=kind)
        definition.inputs["x"].name = "x:0"
        self.signature_defs = {"serving_default": definition}
        self.started = threading.Semaphore(0)
        self.release = threading.Event()
        self.calls = 0

    def signature(self, name):
        return self.signatures[name]

    def predict(self, inputs, signature_name):
        self.calls += 1
        self.started.release()
        assert self.release.wait(20)
        return {"y": inputs["x"] + 1}


@pytest.fixture
def slow():
    model = _Slow()
    yield model
    model.release.set()


def answer_of(future):
    return list(future.result(timeout=20).outputs["y"].float_val)


def status_of(stubs, service=""):
    request = health_pb2.HealthCheckRequest(service=service)
    return stubs.health.Check(request, timeout=20).status


class TestLimits:
    def test_no_more_predictions_run_than_have_a_turn(self, slow):
        with running_grpc([slow], most_predictions=2) as stubs:
            calls = [stubs.prediction.Predict.future(REQUEST) for _ in range(5)]
            for _ in range(2):
                assert slow.started.acquire(timeout=10)
            assert not slow.started.acquire(timeout=0.2)
            slow.release.set()
            assert [answer_of(call) for call in calls] == [[2]] * 5

    def test_rest_and_grpc_share_the_turns(self, slow):
        shared = predictor(threads=1)
        with (
            running_grpc([slow], run_by=shared) as stubs,
            running(rest_app([slow], run_by=shared)) as url,
        ):
            first = stubs.prediction.Predict.future(REQUEST, wait_for_ready=True)
            assert slow.started.acquire(timeout=10)
            answers = []
            body, address = '{"instances": [1]}', f"{url}/v1/models/slow:predict"
            rest = threading.Thread(
                target=lambda: answers.append(httpx.post(address, content=body))
            )
            rest.start()
            assert not slow.started.acquire(timeout=0.3)
            slow.release.set()
            assert answer_of(first) == [2]
            rest.join(10)
            assert [answer.json() for answer in answers] == [{"predictions": [2]}]

    def test_calls_beyond_the_limit_are_refused_while_health_and_status_answer(
        self, slow
    ):
        with running_grpc([slow], max_concurrent_calls=1) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=10)
            assert refusal(stubs.prediction.Predict, REQUEST) == (
                "RESOURCE_EXHAUSTED",
                "More than 1 calls at one time. Retry.",
            )
            assert status_of(stubs) == SERVING
            request = get_model_status_pb2.GetModelStatusRequest()
            request.model_spec.name = "slow"
            assert len(stubs.model.GetModelStatus(request).model_version_status) == 1
            slow.release.set()
            assert answer_of(first) == [2]
            assert answer_of(stubs.prediction.Predict.future(REQUEST)) == [2]

    def test_call_whose_deadline_passes_while_it_waits_is_never_run(self, slow):
        with running_grpc([slow], most_predictions=1) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=10)
            code, _ = refusal(stubs.prediction.Predict, REQUEST, timeout=0.2)
            assert code == "DEADLINE_EXCEEDED"
            cancelled = stubs.prediction.Predict.future(REQUEST)
            cancelled.cancel()
            time.sleep(0.1)
            slow.release.set()
            assert answer_of(first) == [2]
            assert answer_of(stubs.prediction.Predict.future(REQUEST)) == [2]
            assert slow.calls == 2

    def test_deadline_holds_while_the_model_runs(self, slow):
        with running_grpc([slow]) as stubs:
            code, _ = refusal(stubs.prediction.Predict, REQUEST, timeout=0.2)
            assert code == "DEADLINE_EXCEEDED"
            assert slow.calls == 1
            slow.release.set()

    def test_unexpected_failure_is_internal_and_the_server_goes_on(self, slow):
        def fail(inputs, signature_name):
            raise RuntimeError("the disk is gone")

        slow.predict = fail
        with running_grpc([slow]) as stubs:
            assert refusal(stubs.prediction.Predict, REQUEST) == (
                "INTERNAL",
                "RuntimeError: the disk is gone",
            )
            assert status_of(stubs) == SERVING

    @pytest.mark.parametrize("name", ["max_message_bytes", "max_concurrent_calls"])
    @pytest.mark.parametrize("value", [0, 2**31])
    def test_limits_out_of_range_are_refused(self, name, value):
        with pytest.raises(ValueError, match=f"`{name}` must be 1 to"):
            grpc_server(ServedModels(), **{name: value})


class TestHealth:
    def test_server_is_healthy_once_its_model_is_loaded(self, slow):
        models = ServedModels()
        models.configure({"slow": {}})
        models.set_state("slow", VersionStatus(1, VersionState.LOADING))
        with grpc_server(models) as server:
            server.start()
            with channel_to(server.address) as stubs:
                assert status_of(stubs) == NOT_SERVING
                assert refusal(stubs.prediction.Predict, REQUEST) == (
                    "UNAVAILABLE",
                    "The model is still being loaded. Retry.",
                )
                request = get_model_status_pb2.GetModelStatusRequest()
                request.model_spec.name = "slow"
                (status,) = stubs.model.GetModelStatus(request).model_version_status
                assert (status.version, status.state) == (1, status.LOADING)
                models.make_available(slow)
                server.ready()
                assert status_of(stubs) == SERVING
                (status,) = stubs.model.GetModelStatus(request).model_version_status
                assert (status.version, status.state) == (1, status.AVAILABLE)

    @pytest.mark.parametrize("service", ["PredictionService", "ModelService"])
    def test_services_have_their_health(self, slow, service):
        with running_grpc([slow]) as stubs:
            assert status_of(stubs, f"tensorflow.serving.{service}") == SERVING

    def test_unknown_service_is_not_found(self, slow):
        with running_grpc([slow]) as stubs:
            request = health_pb2.HealthCheckRequest(service="other")
            assert refusal(stubs.health.Check, request)[0] == "NOT_FOUND"


class TestStop:
    def test_running_call_ends_and_new_ones_are_refused(self, slow):
        with running_grpc([slow]) as stubs:
            watched = stubs.health.Watch(health_pb2.HealthCheckRequest(), timeout=30)
            assert next(watched).status == SERVING
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=10)
            stubs.server.drain()
            assert next(watched).status == NOT_SERVING
            assert status_of(stubs) == NOT_SERVING
            expected = ("UNAVAILABLE", "The server is shutting down.")
            assert refusal(stubs.prediction.Predict, REQUEST) == expected
            metadata = get_model_metadata_pb2.GetModelMetadataRequest()
            assert refusal(stubs.prediction.GetModelMetadata, metadata) == expected
            status = get_model_status_pb2.GetModelStatusRequest()
            assert refusal(stubs.model.GetModelStatus, status) == expected
            closing = threading.Thread(target=stubs.server.close)
            closing.start()
            closing.join(0.2)
            assert closing.is_alive(), "it did not wait for the call"
            slow.release.set()
            assert answer_of(first) == [2]
            closing.join(10)
            assert not closing.is_alive()
            with pytest.raises(grpc.RpcError):
                stubs.prediction.Predict(REQUEST, timeout=5)

    def test_call_that_takes_too_long_is_ended(self, slow):
        with running_grpc([slow]) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=10)
            stubs.server.close(seconds=0.1)
            assert first.exception(timeout=10).code() in (
                grpc.StatusCode.CANCELLED,
                grpc.StatusCode.UNAVAILABLE,
            )
            slow.release.set()

    def test_port_is_free_after_the_stop(self, slow):
        with running_grpc([slow]) as stubs:
            port = int(stubs.server.address.rpartition(":")[2])
            with pytest.raises(PortInUseError):
                open_socket("127.0.0.1", port)
        open_socket("127.0.0.1", port).close()


class TestStart:
    def test_other_machines_are_kept_out_unless_told(self, slow):
        with running_grpc([slow]) as stubs:
            assert stubs.server.address.startswith("127.0.0.1:")

    def test_taken_port_is_told_with_its_option(self):
        with open_socket("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(PortInUseError, match=f"Port {port} .* --grpc-port"):
                grpc_server(ServedModels(), port=port)

    def test_two_servers_never_share_a_port(self, slow):
        with running_grpc([slow]) as stubs:
            port = int(stubs.server.address.rpartition(":")[2])
            with pytest.raises(PortInUseError):
                grpc_server(ServedModels(), port=port)

    def test_import_does_not_load_tensorflow(self):
        script = (
            "import serving.rpc.server, serving.rpc.services, sys; "
            "assert 'tensorflow' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
