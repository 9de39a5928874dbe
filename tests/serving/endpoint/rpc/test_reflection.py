"""gRPC reflection: a client without .proto files finds the services and calls them."""

import queue

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_reflection.v1alpha.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from serving.web.access import TokenAccess
from tests.support.clock import Clock
from tests.support.running_grpc import predict_request, running_grpc, status_of
from tests.support.token_files import write_tokens

LIST = ServerReflectionRequest(list_services="")
REQUEST = predict_request({"x": [1.0]}, name="stub")
SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
]


class Questions:
    """The messages of a call, which end when the test says so."""

    def __init__(self, *questions):
        self._queue = queue.Queue()
        for question in questions:
            self._queue.put(question)

    def end(self):
        self._queue.put(None)

    def __iter__(self):
        return iter(self._queue.get, None)


def ask(stubs, questions, version="v1alpha", **options):
    """Begin a call; returns the stream of its replies."""
    method = stubs.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        ServerReflectionRequest.SerializeToString,
        ServerReflectionResponse.FromString,
    )
    return method(iter(questions), timeout=60, **options)


def names_of(reply):
    return [each.name for each in reply.list_services_response.service]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_services_are_listed(prompt, version):
    with running_grpc([prompt]) as stubs:
        (reply,) = ask(stubs, [LIST], version)
        assert names_of(reply) == SERVICES


def test_client_without_descriptions_asks_for_them_and_calls(prompt):
    with running_grpc([prompt]) as stubs:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(stubs.channel))
        service = pool.FindServiceByName("tensorflow.serving.ModelService")
        method = service.methods_by_name["GetModelStatus"]
        request = GetMessageClass(method.input_type)()
        request.model_spec.name = "stub"
        call = stubs.channel.unary_unary(
            f"/{service.full_name}/{method.name}",
            type(request).SerializeToString,
            GetMessageClass(method.output_type).FromString,
        )
        (status,) = call(request, timeout=60).model_version_status
        assert status.version == 1


def test_each_service_can_be_described(prompt):
    with running_grpc([prompt]) as stubs:
        asked = [ServerReflectionRequest(file_containing_symbol=s) for s in SERVICES]
        replies = list(ask(stubs, asked))
        assert [reply.original_request for reply in replies] == asked
        assert all(r.file_descriptor_response.file_descriptor_proto for r in replies)


def test_what_is_unknown_is_answered_with_an_error(prompt):
    with running_grpc([prompt]) as stubs:
        asked = ServerReflectionRequest(file_containing_symbol="no.such.Service")
        first, second = ask(stubs, [asked, LIST])
        assert first.error_response.error_code == 5  # NOT_FOUND
        assert names_of(second) == SERVICES


def test_token_is_needed_where_there_is_one(prompt, tmp_path):
    access = TokenAccess(write_tokens(tmp_path / "tokens", "0123456789abcdef\n"))
    with running_grpc([prompt], access=access) as stubs:
        refused = ask(stubs, [LIST])
        assert refused.exception(timeout=60).code().name == "UNAUTHENTICATED"
        metadata = [("authorization", "Bearer 0123456789abcdef")]
        (reply,) = ask(stubs, [LIST], metadata=metadata)
        assert names_of(reply) == SERVICES


def test_long_message_is_refused(prompt):
    with running_grpc([prompt]) as stubs:
        asked = ServerReflectionRequest(file_by_filename="x" * 2**16)
        error = ask(stubs, [asked]).exception(timeout=60)
        assert error.code().name == "RESOURCE_EXHAUSTED"
        assert "at most 65536 bytes" in error.details()


def test_fifth_call_ends_the_first_and_predictions_go_on(prompt):
    with running_grpc([prompt], max_concurrent_calls=1) as stubs:
        asked = [Questions(LIST) for _ in range(5)]
        calls = []
        for questions in asked:
            calls.append(ask(stubs, questions))
            assert names_of(next(calls[-1])) == SERVICES
        assert calls[0].exception(timeout=60).code().name == "CANCELLED"
        assert status_of(stubs) == 1
        assert list(
            stubs.prediction.Predict(REQUEST, timeout=60).outputs["y"].float_val
        ) == [2]
        for questions, call in zip(asked[1:], calls[1:], strict=True):
            questions.end()
            assert list(call) == []
        asked[0].end()


def test_call_is_ended_after_its_time(prompt):
    clock = Clock()
    with running_grpc([prompt], look_seconds=0.02, clock=clock) as stubs:
        questions = Questions(LIST)
        call = ask(stubs, questions)
        assert names_of(next(call)) == SERVICES
        clock.now += 61
        assert call.exception(timeout=60).code().name == "CANCELLED"
        questions.end()
