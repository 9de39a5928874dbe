"""The gRPC server: port, limits, health, and stopping without losing a call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

from serving.access import TokenAccess
from serving.models.served import ServedModels
from serving.predictor import Predictor
from serving.request_observer import RequestObserver
from serving.rpc.gate import CallGate
from serving.rpc.services import ServiceCore, add_services
from serving.sockets import open_socket

__all__ = ["MAX_CONCURRENT_CALLS", "MAX_MESSAGE_BYTES", "GrpcServer"]

MAX_MESSAGE_BYTES = 64 * 2**20
"""Longest message, in both directions, unless another limit is set."""

MAX_CONCURRENT_CALLS = 64
"""Calls that are taken at one time unless another limit is set."""

_FURTHER_CALLS = 64
"""Calls beyond the limit that get a thread: health, status, and to be told so."""

_GRACE_SECONDS = 20.0
_LAST_REPLY_SECONDS = 1.0

_SERVICES = (
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


class GrpcServer:
    """Answers TF Serving's gRPC calls for models in this process.

    The port is taken when the server is made. `start` answers, also while the models
    load; `ready` reports that they are.

    Args:
        models: What is served.
        predictor: Runs the predictions, of this and other protocols together.
        host: Address to listen on; the default keeps other machines out.
        port: Port to listen on, 0 for any free one.
        reload: Takes a `ModelServerConfig` and makes it what is served.
        access: Checks the bearer token of each call; None lets everybody in. Health
            is told to everybody.
        observer: Logs and counts the calls.
        credentials: For TLS; None for a port without.
        max_message_bytes: Longest message in both directions, at least 1. The tensors
            of one request may take as much memory.
        max_concurrent_calls: Calls that are taken at one time, at least 1; most of
            them wait for their turn. Further ones get RESOURCE_EXHAUSTED.

    Raises:
        PortInUseError: Another program listens on the port.
        OSError: The address cannot be listened on.
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        models: ServedModels,
        predictor: Predictor,
        *,
        host: str = "127.0.0.1",
        port: int = 8500,
        reload: Callable[[Any], None],
        access: TokenAccess | None = None,
        observer: RequestObserver | None = None,
        credentials: grpc.ServerCredentials | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        max_concurrent_calls: int = MAX_CONCURRENT_CALLS,
    ) -> None:
        for name, value in (
            ("max_message_bytes", max_message_bytes),
            ("max_concurrent_calls", max_concurrent_calls),
        ):
            if not 1 <= value < 2**31:
                raise ValueError(
                    f"`{name}` must be 1 to 2147483647. Received: {name}={value}."
                )
        self._max_message_bytes = max_message_bytes
        self._gate = CallGate(max_concurrent_calls)
        self._core = ServiceCore(models, predictor, reload, max_message_bytes)
        self._access = access
        self._observer = observer or RequestObserver()
        self._credentials = credentials
        self._health: Any = None
        self._pool = ThreadPoolExecutor(
            max_concurrent_calls + _FURTHER_CALLS, thread_name_prefix="grpc"
        )
        self._server = grpc.server(
            self._pool,
            options=[
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", max_message_bytes),
                # Else a second server would share the port, and the calls, in silence.
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=max_concurrent_calls + _FURTHER_CALLS,
        )
        self.address = self._listen(host, port)
        """Host and port, as a client's channel takes them."""

    def _listen(self, host: str, port: int) -> str:
        # gRPC says only that it failed; this says why.
        open_socket(host, port, option="--grpc-port").close()
        where = f"[{host}]" if ":" in host else host
        try:
            if self._credentials is None:
                bound = self._server.add_insecure_port(f"{where}:{port}")
            else:
                bound = self._server.add_secure_port(
                    f"{where}:{port}", self._credentials
                )
        except RuntimeError as error:
            raise OSError(f"Cannot listen on {where}:{port} ({error}).") from error
        return f"{where}:{bound}"

    def start(self) -> None:
        """Answer from now on; health tells that the server is not ready."""
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc

        self._health = health.HealthServicer()
        for service in _SERVICES:
            self._health.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        add_services(self._core, self._gate, self._access, self._observer, self._server)
        self._server.start()

    def ready(self) -> None:
        """Report from now on that the server is healthy."""
        from grpc_health.v1 import health_pb2

        for service in _SERVICES:
            self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def drain(self) -> None:
        """Refuse new calls and report as not serving; calls under way go on."""
        self._gate.close()
        if self._health is not None:
            self._health.enter_graceful_shutdown()

    def close(self, seconds: float = _GRACE_SECONDS) -> None:
        """Drain, wait for the calls under way, and free the port.

        Args:
            seconds: Calls that take longer are ended.
        """
        self.drain()
        if self._health is None:
            # gRPC 1.85 frees the port only of a server that has been started.
            self._server.start()
        finished = self._gate.wait_until_empty(seconds)
        # The last replies may still be on their way; a watched health never ends.
        self._server.stop(_LAST_REPLY_SECONDS if finished else None).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        """Return the server itself; the end of the block closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the server."""
        self.close()
