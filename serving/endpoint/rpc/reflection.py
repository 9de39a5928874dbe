"""Answer gRPC's reflection protocol, as TF Serving does: tools need no .proto files.

A call is a stream of questions that holds a thread. So there are few at one time, each
for a limited time, and further ones end the oldest.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from ...web.access import TokenAccess
from ...web.status import StatusCode, StatusError
from .message import Arrivals

NAME = "grpc.reflection.v1alpha.ServerReflection"

# The same messages under another name; tools ask for it first.
_NAMES = (NAME, "grpc.reflection.v1.ServerReflection")
_METHOD = "ServerReflectionInfo"

# Whatever has been imported can be described.
_DESCRIPTIONS = (
    "grpc_health.v1.health_pb2",
    "tensorflow_serving.apis.model_service_pb2",
    "tensorflow_serving.apis.prediction_service_pb2",
)


class Reflection:
    """Describes the services of a server to its clients.

    Args:
        services: Full names of the services, of TF Serving and of gRPC.
        arrivals: Bounds the calls, and their messages.
        access: Checks the bearer token of a call; None lets everybody in.
    """

    def __init__(
        self, services: Iterable[str], arrivals: Arrivals, access: TokenAccess | None
    ) -> None:
        from grpc_reflection.v1alpha.reflection import ReflectionServicer

        for module in _DESCRIPTIONS:
            # That of ModelService was made by an old compiler: its last line, which
            # sets what protobuf has set, fails in tensorflow-serving-api up to 2.21.
            with contextlib.suppress(AttributeError):
                importlib.import_module(module)
        self._arrivals = arrivals
        self._access = access
        self._servicer = ReflectionServicer([*services, NAME])

    def add_to(self, server: Any) -> None:
        """Register the service at a `grpc.Server`."""
        handler = grpc.stream_stream_rpc_method_handler(
            self._answer, response_serializer=lambda reply: reply.SerializeToString()
        )
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(name, {_METHOD: handler})
                for name in _NAMES
            ]
        )

    def _answer(
        self, messages: Iterator[bytes], call: grpc.ServicerContext
    ) -> Iterator[Any]:
        try:
            if self._access is not None:
                metadata: dict[str, Any] = dict(call.invocation_metadata())
                self._access.check(metadata.get("authorization"))
            # Also while it waits for a client that does not read.
            with self._arrivals.limit.hold(call):
                questions = self._questions(messages, call)
                yield from self._servicer.ServerReflectionInfo(questions, call)
        except StatusError as error:
            call.abort(getattr(grpc.StatusCode, error.code.name), error.message)

    def _questions(
        self, messages: Iterator[bytes], call: grpc.ServicerContext
    ) -> Iterator[Any]:
        """Yield the messages of the client, until it sends no more."""
        from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

        path = f"/{NAME}/{_METHOD}"
        while True:
            try:
                with self._arrivals.receive(
                    messages, call, ServerReflectionRequest, path
                ) as (question, _):
                    yield question
            except StatusError as error:
                if error.code is StatusCode.UNIMPLEMENTED:  # there is no more message
                    return
                raise
