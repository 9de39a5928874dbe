"""Clients of gRPC that keep the server waiting, over a real socket."""

import gc
import logging
import queue
import socket
import threading
import time
import weakref

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import get_model_status_pb2

from serving.endpoint.options import ServerOptions
from serving.endpoint.rpc.message_memory import MessageMemory
from serving.web.access import TokenAccess
from serving.web.status import StatusCode, StatusError
from tests.support.clock import Clock
from tests.support.running_grpc import (
    predict_request,
    refusal,
    running_grpc,
    status_of,
)
from tests.support.token_files import write_tokens

PREDICT = "/tensorflow.serving.PredictionService/Predict"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REQUEST = predict_request({"x": [1.0]}, name="stub")
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def silent():
    """Messages that never come; the end of the test ends them."""
    end = threading.Event()

    def messages():
        end.wait()
        yield from ()

    yield messages
    end.set()


def call_in_silence(stubs, method, silent, **options):
    """Send the headers of a call, and no message."""
    return stubs.channel.stream_unary(method).future(silent(), timeout=60, **options)


def first_to_end(calls, number):
    """Wait until so many calls have ended; returns their codes."""
    ended = queue.Queue()
    for call in calls:
        call.add_done_callback(ended.put)
    return [ended.get(timeout=60).code().name for _ in range(number)]


def until_messages_are_awaited(stubs, place, number):
    """Wait until so many calls wait for their message, or for memory for it."""
    memory = stubs.server._arrivals[place].memory
    deadline = time.monotonic() + 60
    while len(memory._waiting) + len(memory._arriving) != number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def predict_when_there_is_room(stubs):
    """Predict, again and again until a call that was ended has left its place."""
    while True:
        call = stubs.prediction.Predict.future(REQUEST, timeout=60)
        if call.exception(timeout=60) is None:
            return list(call.result().outputs["y"].float_val)
        assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def status_request():
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "stub"
    return request


class TestMessagesThatNeverCome:
    def test_predictions_leave_health_and_status_answering(self, prompt, silent):
        with running_grpc([prompt], max_concurrent_calls=2) as stubs:
            calls = [call_in_silence(stubs, PREDICT, silent) for _ in range(80)]
            assert first_to_end(calls, 78) == ["RESOURCE_EXHAUSTED"] * 78
            assert status_of(stubs) == SERVING
            answer = stubs.model.GetModelStatus(status_request(), timeout=60)
            assert len(answer.model_version_status) == 1

    def test_status_calls_leave_health_and_predictions_answering(self, prompt, silent):
        with running_grpc([prompt]) as stubs:
            calls = [call_in_silence(stubs, STATUS, silent) for _ in range(80)]
            assert first_to_end(calls, 56) == ["RESOURCE_EXHAUSTED"] * 56
            assert status_of(stubs) == SERVING
            answer = stubs.prediction.Predict(REQUEST, timeout=60)
            assert list(answer.outputs["y"].float_val) == [2]

    @pytest.mark.parametrize("method", [CHECK, WATCH])
    def test_health_calls_make_room_for_those_that_come_later(
        self, prompt, silent, method
    ):
        clock = Clock()
        with running_grpc([prompt], clock=clock) as stubs:
            calls = [
                call_in_silence(stubs, method, silent)
                for _ in range(2 * ServerOptions.grpc_calls)
            ]
            ended = first_to_end(calls, len(calls) - 24)
            assert set(ended) == {"CANCELLED"}
            until_messages_are_awaited(stubs, 2, 24)
            clock.now += 1  # the patience with those that came first
            assert status_of(stubs) == SERVING
            answer = stubs.prediction.Predict(REQUEST, timeout=60)
            assert list(answer.outputs["y"].float_val) == [2]

    @pytest.mark.parametrize("method", [PREDICT, STATUS, CHECK, WATCH])
    def test_call_is_ended_after_its_time(self, prompt, silent, method):
        clock = Clock()
        with running_grpc(
            [prompt], max_concurrent_calls=1, look_seconds=0.02, clock=clock
        ) as stubs:
            call = call_in_silence(stubs, method, silent)
            while not call.done():  # also if the server knows of it later
                clock.now += 100
                time.sleep(0.01)
            assert call.code().name == "CANCELLED"
            assert predict_when_there_is_room(stubs) == [2]

    @pytest.mark.parametrize("method", [PREDICT, STATUS])
    def test_calls_that_wait_for_long_make_room_where_there_is_none(
        self, prompt, silent, method
    ):
        clock = Clock()
        with running_grpc([prompt], max_concurrent_calls=24, clock=clock) as stubs:
            calls = [call_in_silence(stubs, method, silent) for _ in range(25)]
            # Of calls about the status, few may wait for their message at one time.
            assert first_to_end(calls, 1)[0] in ("RESOURCE_EXHAUSTED", "CANCELLED")
            until_messages_are_awaited(stubs, (PREDICT, STATUS).index(method), 24)
            clock.now += 6
            if method == PREDICT:
                answer = stubs.prediction.Predict(REQUEST, timeout=60)
                assert list(answer.outputs["y"].float_val) == [2]
            else:
                assert stubs.model.GetModelStatus(status_request(), timeout=60)

    def test_messages_beyond_the_memory_wait_for_others(self, slow):
        memory = MessageMemory(100, longest_bytes=50, clock=Clock())
        with running_grpc([slow], max_message_bytes=50, memory=memory) as stubs:
            assert REQUEST.ByteSize() * 4 > 100  # no room for a second one
            first, second = (
                stubs.prediction.Predict.future(REQUEST, timeout=60) for _ in range(2)
            )
            assert slow.started.acquire(timeout=60)
            assert not slow.started.acquire(timeout=0.2)
            slow.release.set()
            for call in (first, second):
                assert list(call.result(timeout=60).outputs["y"].float_val) == [2]

    def test_message_that_came_in_time_may_be_worked_on_for_longer(self, slow):
        clock = Clock()
        with running_grpc([slow], look_seconds=0.02, clock=clock) as stubs:
            call = stubs.prediction.Predict.future(REQUEST, timeout=60)
            assert slow.started.acquire(timeout=60)
            clock.now += 1000
            with pytest.raises(grpc.FutureTimeoutError):
                call.result(timeout=0.2)
            slow.release.set()
            assert list(call.result(timeout=60).outputs["y"].float_val) == [2]

    def test_client_that_goes_frees_its_place(self, prompt, silent):
        with running_grpc([prompt], max_concurrent_calls=1) as stubs:
            waiting = [call_in_silence(stubs, PREDICT, silent) for _ in range(2)]
            assert first_to_end(waiting, 1) == ["RESOURCE_EXHAUSTED"]
            for call in waiting:
                call.cancel()
            assert predict_when_there_is_room(stubs) == [2]


class TestToken:
    @pytest.fixture
    def access(self, tmp_path):
        return TokenAccess(write_tokens(tmp_path / "tokens", "0123456789abcdef\n"))

    @pytest.mark.parametrize("method", [PREDICT, STATUS])
    def test_call_without_token_is_refused_before_its_message(
        self, prompt, silent, access, method
    ):
        with running_grpc([prompt], access=access) as stubs:
            call = call_in_silence(stubs, method, silent)
            assert call.exception(timeout=60).code().name == "UNAUTHENTICATED"
            assert "x-request-id" in dict(call.trailing_metadata())

    def test_call_with_token_is_answered_and_health_needs_none(self, prompt, access):
        with running_grpc([prompt], access=access) as stubs:
            metadata = [("authorization", "Bearer 0123456789abcdef")]
            answer = stubs.prediction.Predict(REQUEST, timeout=60, metadata=metadata)
            assert list(answer.outputs["y"].float_val) == [2]
            assert status_of(stubs) == SERVING


class TestWatchers:
    def test_more_than_64_are_refused_until_one_leaves(self, prompt):
        request = health_pb2.HealthCheckRequest()
        with running_grpc([prompt]) as stubs:
            watching = []
            for _ in range(64):  # in turn: calls whose messages are late are ended
                watching.append(stubs.health.Watch(request, timeout=60))
                assert next(watching[-1]).status == SERVING

            def one_more():
                watch = stubs.health.Watch(request, timeout=60)
                try:
                    return next(watch).status
                except grpc.RpcError as error:
                    return error.code().name

            assert one_more() == "RESOURCE_EXHAUSTED"
            assert status_of(stubs) == SERVING
            watching[0].cancel()
            while (told := one_more()) == "RESOURCE_EXHAUSTED":
                pass
            assert told == SERVING

    def test_unknown_service_is_reported_as_such(self, prompt):
        with running_grpc([prompt]) as stubs:
            request = health_pb2.HealthCheckRequest(service="other")
            status = next(stubs.health.Watch(request, timeout=60)).status
            assert status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

    def test_client_that_does_not_read_holds_nothing_up(self, prompt):
        with running_grpc([prompt]) as stubs:
            host, _, port = stubs.server.address.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=60) as raw:
                raw.sendall(_watch_without_window())
                received = b""
                while _HEADERS_OF_REPLY not in received:
                    received += raw.recv(4096)
                closing = threading.Thread(target=stubs.server.close, args=[0.1])
                closing.start()
                closing.join(60)
                assert not closing.is_alive()


_HEADERS_OF_REPLY = b"application/grpc"


def _watch_without_window():
    """Bytes of HTTP/2 that call Watch, and let the server send no reply."""

    def frame(kind, flags, stream, content):
        return (
            len(content).to_bytes(3, "big")
            + bytes([kind, flags])
            + stream.to_bytes(4, "big")
            + content
        )

    def header(name, value):
        return b"".join([b"\x00", bytes([len(name)]), name, bytes([len(value)]), value])

    headers = b"".join(
        header(name, value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", WATCH.encode()),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
    )
    window = (4).to_bytes(2, "big") + bytes(4)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, window)  # SETTINGS: the window of a stream is 0 bytes
        + frame(1, 4, 1, headers)  # HEADERS
        + frame(0, 1, 1, bytes(5))  # DATA: an empty message
    )


class TestMessages:
    @pytest.mark.parametrize("method", [STATUS, CHECK, WATCH])
    def test_long_message_about_health_or_status_is_refused(self, prompt, method):
        name = "x" * 2**16
        if method == STATUS:
            request = status_request()
            request.model_spec.name = name
        else:
            request = health_pb2.HealthCheckRequest(service=name)
        with running_grpc([prompt]) as stubs:
            call = stubs.channel.unary_unary(method)
            assert refusal(call, request.SerializeToString()) == (
                "RESOURCE_EXHAUSTED",
                f"A message to {method} may have at most 65536 bytes. "
                f"Received: {request.ByteSize()}.",
            )

    def test_message_of_very_many_parts_is_refused_before_it_is_parsed(self, prompt):
        request = predict_request({"x": [1.0]}, name="stub", outputs=[""] * 2**18)
        with running_grpc([prompt]) as stubs:
            assert refusal(stubs.prediction.Predict, request) == (
                "RESOURCE_EXHAUSTED",
                f"A message to {PREDICT} may have at most 262144 strings and other "
                "parts. Send fewer instances, and numbers in `tensor_content`.",
            )

    def test_refused_call_keeps_nothing_in_memory(self, prompt):
        inputs = []

        def refuse(arrays, signature_name):
            inputs.append(weakref.ref(arrays["x"]))
            raise StatusError(StatusCode.INVALID_ARGUMENT, "no")

        prompt.predict = refuse
        gc.disable()
        try:
            with running_grpc([prompt]) as stubs:
                assert refusal(stubs.prediction.Predict, REQUEST)[1] == "no"
            (array,) = inputs
            deadline = time.monotonic() + 60
            while array() is not None:  # the thread of the call may still end it
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            gc.enable()

    def test_no_message_is_what_a_unary_method_refuses(self, prompt):
        with running_grpc([prompt]) as stubs:
            assert refusal(stubs.channel.stream_unary(PREDICT), iter([])) == (
                "UNIMPLEMENTED",
                f'"{PREDICT}" requires exactly one request message.',
            )

    def test_first_of_two_messages_is_answered(self, prompt):
        # As gRPC's own servers do: they do not look for a second one.
        with running_grpc([prompt]) as stubs:
            call = stubs.channel.stream_unary(
                PREDICT, lambda message: message.SerializeToString()
            )
            other = predict_request({"x": [7.0]}, name="other")
            assert call(iter([REQUEST, other]), timeout=60)
            assert prompt.seen == [[1]]

    @pytest.mark.parametrize("method", [PREDICT, STATUS, CHECK])
    def test_bytes_that_are_no_message_leave_no_traceback(self, prompt, caplog, method):
        with running_grpc([prompt]) as stubs, caplog.at_level(logging.INFO):
            assert refusal(stubs.channel.unary_unary(method), b"\xff" * 50) == (
                "INTERNAL",
                "Exception deserializing request!",
            )
            assert not any(record.exc_info for record in caplog.records)

    def test_empty_message_is_one(self, prompt):
        with running_grpc([prompt]) as stubs:
            assert refusal(stubs.channel.unary_unary(PREDICT), b"") == (
                "INVALID_ARGUMENT",
                "Missing ModelSpec",
            )

    def test_unary_stubs_see_metadata_and_compression_as_ever(self, prompt):
        with running_grpc([prompt]) as stubs:
            answer, call = stubs.prediction.Predict.with_call(
                REQUEST,
                timeout=60,
                metadata=[("x-request-id", "mine")],
                compression=grpc.Compression.Gzip,
            )
            assert list(answer.outputs["y"].float_val) == [2]
            assert ("x-request-id", "mine") in call.trailing_metadata()
            assert (call.code(), call.details()) == (grpc.StatusCode.OK, "")
