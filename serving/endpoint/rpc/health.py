"""Answer gRPC's health protocol, which no client can turn into a burden.

Everybody may ask, so nothing here waits for a client in a thread without limit: neither
for its message, nor until it reads what has changed.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from ...web.status import StatusError
from .message import Arrivals

NAME = "grpc.health.v1.Health"
_MOST_WATCHERS = 64


class _Watcher:
    """A client that watches the status.

    Args:
        send: Sends it a message; waits until the client takes it.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._last: int | None = None

    def notify(self, status: Callable[[], int]) -> None:
        """Send the status, unless it was the last one that was sent."""
        from grpc_health.v1 import health_pb2

        with self._lock:
            now = status()
            if now != self._last:
                self._last = now
                self._send(health_pb2.HealthCheckResponse(status=now))


class Health:
    """Reports whether the server serves; not, until it is set.

    Args:
        services: Names of the services, all of the same health. "" is the server.
        arrivals: Bounds the calls that wait for their message.
    """

    def __init__(self, services: Iterable[str], arrivals: Arrivals) -> None:
        self._services = frozenset(services)
        self._arrivals = arrivals
        self._lock = threading.Lock()
        self._is_serving = False
        self._is_final = False
        self._watchers: dict[_Watcher, str] = {}

    def set(self, is_serving: bool, *, is_final: bool = False) -> None:
        """Change the status, and send it to those who watch. Does not wait for them.

        Args:
            is_serving: Whether the server serves.
            is_final: Whether this cannot be changed any more.
        """
        with self._lock:
            if self._is_final:
                return
            self._is_serving, self._is_final = is_serving, is_final
            watchers = list(self._watchers.items())
        for watcher, service in watchers:
            threading.Thread(
                target=watcher.notify,
                args=[functools.partial(self._status, service)],
                name="grpc-health",
                daemon=True,
            ).start()

    def add_to(self, server: Any) -> None:
        """Register the service at a `grpc.Server`."""

        def watch(
            messages: Iterator[bytes],
            call: grpc.ServicerContext,
            send: Callable[[Any], None],
        ) -> None:
            self._watch(messages, call, send)

        # Else each watcher would hold a thread; grpc_health does the same.
        watch.experimental_non_blocking = True  # type: ignore[attr-defined]
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    NAME,
                    {
                        "Check": grpc.stream_unary_rpc_method_handler(
                            self._check, response_serializer=_serialize
                        ),
                        "Watch": grpc.stream_stream_rpc_method_handler(
                            watch, response_serializer=_serialize
                        ),
                    },
                )
            ]
        )

    def _check(self, messages: Iterator[bytes], call: grpc.ServicerContext) -> Any:
        from grpc_health.v1 import health_pb2

        service = self._service(messages, call, "Check")
        if service not in self._services:
            call.abort(grpc.StatusCode.NOT_FOUND, "")
        return health_pb2.HealthCheckResponse(status=self._status(service))

    def _watch(
        self,
        messages: Iterator[bytes],
        call: grpc.ServicerContext,
        send: Callable[[Any], None],
    ) -> None:
        service = self._service(messages, call, "Watch")
        with self._arrivals.limit.hold(call):
            watcher = _Watcher(send)
            with self._lock:
                if len(self._watchers) >= _MOST_WATCHERS:
                    call.abort(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"More than {_MOST_WATCHERS} calls watch. Call Check.",
                    )
                self._watchers[watcher] = service
            if not call.add_callback(functools.partial(self._forget, watcher)):
                self._forget(watcher)
                return
            watcher.notify(functools.partial(self._status, service))

    def _forget(self, watcher: _Watcher) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)

    def _status(self, service: str) -> int:
        from grpc_health.v1 import health_pb2

        if service not in self._services:
            return int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        if self._is_serving:
            return int(health_pb2.HealthCheckResponse.SERVING)
        return int(health_pb2.HealthCheckResponse.NOT_SERVING)

    def _service(
        self, messages: Iterator[bytes], call: grpc.ServicerContext, method: str
    ) -> str:
        from grpc_health.v1 import health_pb2

        kind, path = health_pb2.HealthCheckRequest, f"/{NAME}/{method}"
        try:
            with self._arrivals.receive(messages, call, kind, path) as (request, _):
                service = str(request.service)
        except StatusError as error:
            call.abort(getattr(grpc.StatusCode, error.code.name), error.message)
        return service


def _serialize(reply: Any) -> bytes:
    return bytes(reply.SerializeToString())
