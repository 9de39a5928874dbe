"""Limits, health, start and stop of the gRPC server, over a real socket."""

import queue
import threading
from concurrent.futures import CancelledError

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving.endpoint.models.served import ServedModels
from serving.endpoint.models.version_states import VersionState, VersionStatus
from serving.web.sockets import PortInUseError, open_socket
from tests.support.refuses import refusals, refuses
from tests.support.running_grpc import (
    channel_to,
    grpc_server,
    predict_request,
    refusal,
    running_grpc,
    status_of,
)
from tests.support.running_server import running
from tests.support.served import predictor, rest_app

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
REQUEST = predict_request({"x": [1.0]}, name="stub")


class _SeenQueue:
    """Runs predictions, and shows what is in the queue."""

    def __init__(self, threads):
        self._predictor = predictor(threads)
        self.futures = queue.Queue()

    def submit(self, *arguments):
        future = self._predictor.submit(*arguments)
        self.futures.put(future)
        return future


def answer_of(future):
    return list(future.result(timeout=60).outputs["y"].float_val)


class TestLimits:
    def test_rest_and_grpc_share_the_turns(self, slow):
        shared = predictor(threads=1)
        with (
            running_grpc([slow], run_by=shared) as stubs,
            running(rest_app([slow], run_by=shared)) as url,
        ):
            first = stubs.prediction.Predict.future(REQUEST, wait_for_ready=True)
            assert slow.started.acquire(timeout=60)
            answers = []
            body, address = '{"instances": [1]}', f"{url}/v1/models/stub:predict"
            rest = threading.Thread(
                target=lambda: answers.append(
                    httpx2.post(address, content=body, timeout=60)
                )
            )
            rest.start()
            assert not slow.started.acquire(timeout=0.3)
            slow.release.set()
            assert answer_of(first) == [2]
            rest.join(60)
            assert [answer.json() for answer in answers] == [{"predictions": [2]}]

    def test_calls_beyond_the_limit_are_refused_while_health_and_status_answer(
        self, slow
    ):
        with running_grpc([slow], max_concurrent_calls=1) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=60)
            assert refusal(stubs.prediction.Predict, REQUEST) == (
                "RESOURCE_EXHAUSTED",
                "More than 1 calls at one time. Retry.",
            )
            assert status_of(stubs) == SERVING
            request = get_model_status_pb2.GetModelStatusRequest()
            request.model_spec.name = "stub"
            assert len(stubs.model.GetModelStatus(request).model_version_status) == 1
            slow.release.set()
            assert answer_of(first) == [2]
            assert answer_of(stubs.prediction.Predict.future(REQUEST)) == [2]

    def test_call_whose_deadline_passes_while_it_waits_is_never_run(self, slow):
        seen = _SeenQueue(threads=1)
        with running_grpc([slow], run_by=seen) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=60)
            assert seen.futures.get(timeout=60).running()
            while seen.futures.empty():  # its time may be over before it comes
                code, _ = refusal(stubs.prediction.Predict, REQUEST, timeout=0.2)
                assert code == "DEADLINE_EXCEEDED"
            while not seen.futures.empty():  # the server's own timer may be later
                with pytest.raises(CancelledError):
                    seen.futures.get().result(timeout=60)
            slow.release.set()
            assert answer_of(first) == [2]
            assert answer_of(stubs.prediction.Predict.future(REQUEST)) == [2]
            assert len(slow.seen) == 2

    def test_call_that_is_cancelled_leaves_the_queue_at_once(self, slow):
        seen = _SeenQueue(threads=1)
        with running_grpc([slow], run_by=seen, max_concurrent_calls=2) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=60)
            assert seen.futures.get(timeout=60).running()
            waiting = stubs.prediction.Predict.future(REQUEST)
            queued = seen.futures.get(timeout=60)
            waiting.cancel()
            with pytest.raises(CancelledError):
                queued.result(timeout=60)
            slow.release.set()
            assert answer_of(first) == [2]
            assert len(slow.seen) == 1

    def test_deadline_holds_while_the_model_runs(self, slow):
        with running_grpc([slow]) as stubs:
            while not slow.seen:  # its time may be over before it has begun to run
                code, _ = refusal(stubs.prediction.Predict, REQUEST, timeout=0.2)
                assert code == "DEADLINE_EXCEEDED"
            slow.release.set()

    def test_call_without_a_deadline_has_that_of_the_server(self, slow):
        with running_grpc([slow], timeout_seconds=0.1) as stubs:
            for deadline in (None, 60):
                assert refusal(stubs.prediction.Predict, REQUEST, timeout=deadline) == (
                    "DEADLINE_EXCEEDED",
                    "Deadline Exceeded",
                )
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

    @refusals(
        ("max_message_bytes", 0, "must be 1 to 2147483647"),
        ("max_message_bytes", 2**31, "must be 1 to 2147483647"),
        ("max_concurrent_calls", 0, "must be 1 to 2147483647"),
        ("max_concurrent_calls", 2**31, "must be 1 to 2147483647"),
        ("timeout_seconds", 0, "must be above 0"),
        ("message_seconds", 0, "must be more than 0"),
        ("message_seconds", -1.0, "must be more than 0"),
    )
    def test_limits_out_of_range_are_refused(self, argument, value, rule):
        models = {"models": ServedModels()}
        refuses(grpc_server, argument=argument, value=value, rule=rule, valid=models)


class TestHealth:
    def test_server_is_healthy_once_its_model_is_loaded(self, slow):
        models = ServedModels()
        models.configure({"stub": {}})
        models.set_state("stub", VersionStatus(1, VersionState.LOADING))
        with grpc_server(models) as server:
            server.start()
            with channel_to(server.address) as stubs:
                assert status_of(stubs) == NOT_SERVING
                assert refusal(stubs.prediction.Predict, REQUEST) == (
                    "UNAVAILABLE",
                    "The model is still being loaded. Retry.",
                )
                request = get_model_status_pb2.GetModelStatusRequest()
                request.model_spec.name = "stub"
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


class TestStop:
    def test_running_call_ends_and_new_ones_are_refused(self, slow):
        with running_grpc([slow]) as stubs:
            watched = stubs.health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
            assert next(watched).status == SERVING
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=60)
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
            closing.join(60)
            assert not closing.is_alive()
            with pytest.raises(grpc.RpcError):
                stubs.prediction.Predict(REQUEST, timeout=60)

    def test_call_that_takes_too_long_is_ended(self, slow):
        with running_grpc([slow]) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=60)
            stubs.server.close(seconds=0.1)
            assert first.exception(timeout=60).code() in (
                grpc.StatusCode.CANCELLED,
                grpc.StatusCode.UNAVAILABLE,
            )
            slow.release.set()

    def test_time_for_the_last_calls_begins_at_the_drain(self, slow):
        with running_grpc([slow]) as stubs:
            first = stubs.prediction.Predict.future(REQUEST)
            assert slow.started.acquire(timeout=60)
            stubs.server.drain(seconds=0.1)
            stubs.server.drain(seconds=1000)
            closing = threading.Thread(target=stubs.server.close)
            closing.start()
            assert first.exception(timeout=60).code() in (
                grpc.StatusCode.CANCELLED,
                grpc.StatusCode.UNAVAILABLE,
            )
            closing.join(60)
            assert not closing.is_alive()
            slow.release.set()

    def test_message_that_never_comes_does_not_outlast_the_stop(self, slow):
        never = threading.Event()

        def messages():
            never.wait()
            yield from ()

        with running_grpc([slow], max_concurrent_calls=1) as stubs:
            predict = stubs.channel.stream_unary(
                "/tensorflow.serving.PredictionService/Predict"
            )
            calls = [predict.future(messages()) for _ in range(2)]
            ended = queue.Queue()
            for call in calls:
                call.add_done_callback(ended.put)
            assert ended.get(timeout=60).code().name == "RESOURCE_EXHAUSTED"
            closing = threading.Thread(target=stubs.server.close, args=[0.1])
            closing.start()
            closing.join(60)
            assert not closing.is_alive()
        never.set()

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

    def test_taken_port_is_reported_with_its_option(self):
        with open_socket("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(PortInUseError, match=f"Port {port} .* --grpc-port"):
                grpc_server(ServedModels(), port=port)

    def test_two_servers_never_share_a_port(self, slow):
        with running_grpc([slow]) as stubs:
            port = int(stubs.server.address.rpartition(":")[2])
            with pytest.raises(PortInUseError):
                grpc_server(ServedModels(), port=port)
