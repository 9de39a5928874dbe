"""Run the gRPC server: port, limits, health, and stopping without losing a call."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

from tfdml.messages import shortened

from ...web.access import TokenAccess
from ...web.body import ARRIVAL_SECONDS
from ...web.http_connection import most_connections
from ...web.observer import RequestObserver
from ...web.sockets import GRACE_SECONDS, open_socket
from ..models.served import ServedModels
from ..options import ServerOptions
from ..predictor import Predictor
from .calls import CallRules
from .gate import CallGate
from .health import NAME as HEALTH
from .health import Health
from .message import Arrivals, CallLimit
from .message_memory import MessageMemory
from .reflection import Reflection
from .services import ServiceCore, add_services

_STATUS_CALLS = 24
_HEALTH_CALLS = 24
_REFLECTION_CALLS = 4
_FURTHER_CALLS = _STATUS_CALLS + _HEALTH_CALLS + _REFLECTION_CALLS + 16
"""Calls beyond the limit that get a thread; so that they are refused."""

_HEALTH_SECONDS = 5.0
_SHORT_BYTES = 2**16
_SHORT_AT_ONCE = 4  # no less than calls of reflection, which wait with their memory
_SHORT_PATIENCE = 0.2
"""Messages about health and status are short: they come at once."""

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
            is reported to everybody.
        observer: Logs and counts the calls.
        credentials: For TLS; None for a port without.
        max_message_bytes: Longest message in both directions, at least 1. The tensors
            of one request may take as much memory.
        memory: Bounds the messages of predictions at one time; by default as
            `MessageMemory` finds it.
        max_concurrent_calls: Calls that are taken at one time, at least 1; most of
            them wait for their turn. Further ones get RESOURCE_EXHAUSTED.
        timeout_seconds: How long a prediction may take, waiting included, above 0; the
            client may set a shorter time.
        message_seconds: Time in which the message of a call must arrive, more than 0;
            else the call is ended.
        look_seconds: How often it is checked which messages are late.
        clock: Returns the time in seconds, by which a message is late; a `memory` has
            its own.

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
        max_message_bytes: int = ServerOptions.grpc_message_bytes,
        memory: MessageMemory | None = None,
        max_concurrent_calls: int = ServerOptions.grpc_calls,
        timeout_seconds: float = ServerOptions.grpc_timeout_seconds,
        message_seconds: float = ARRIVAL_SECONDS,
        look_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (
            ("max_message_bytes", max_message_bytes),
            ("max_concurrent_calls", max_concurrent_calls),
        ):
            if not 1 <= value < 2**31:
                raise ValueError(
                    f"`{name}` must be 1 to 2147483647. Received: {name}={value}."
                )
        if not timeout_seconds > 0:
            raise ValueError(
                "`timeout_seconds` must be above 0. Received: "
                f"timeout_seconds={timeout_seconds}."
            )
        if message_seconds <= 0:
            raise ValueError(
                "`message_seconds` must be more than 0. Received: "
                f"message_seconds={message_seconds}."
            )
        self._core = ServiceCore(
            models, predictor, reload, max_message_bytes, timeout_seconds, clock
        )
        if memory is None:
            memory = MessageMemory(longest_bytes=max_message_bytes, clock=clock)
        limit = CallLimit(message_seconds, clock=clock)
        # No client keeps others from health and status by long messages or slow ones.
        short = [
            Arrivals(
                CallLimit(seconds, most, patience=_SHORT_PATIENCE, clock=clock),
                MessageMemory(
                    _SHORT_AT_ONCE * max_message_bytes,
                    longest_bytes=max_message_bytes,
                    patience=_SHORT_PATIENCE,
                    copies=1,
                    clock=clock,
                ),
                _SHORT_BYTES,
            )
            for seconds, most in (
                (message_seconds, None),
                (min(message_seconds, _HEALTH_SECONDS), _HEALTH_CALLS),
                (message_seconds, _REFLECTION_CALLS),
            )
        ]
        self._arrivals = (Arrivals(limit, memory), *short)
        self._predictions, self._others = (
            CallGate(most, arrivals.limit.make_room)
            for most, arrivals in zip(
                (max_concurrent_calls, _STATUS_CALLS), self._arrivals, strict=False
            )
        )
        self._rules = CallRules(access, observer or RequestObserver())
        self._credentials = credentials
        self._health = Health(_SERVICES, self._arrivals[2])
        self._is_started = False
        self._look_seconds = min(look_seconds, message_seconds)
        self._closed = threading.Event()
        self._ends_at = math.inf
        self._pool = ThreadPoolExecutor(
            max_concurrent_calls + _FURTHER_CALLS, thread_name_prefix="grpc"
        )
        self._server = grpc.server(
            self._pool,
            options=[
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", max_message_bytes),
                # A client that is gone without a word is noticed, and its calls end.
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.max_concurrent_streams", 256),
                # Connections that dribble or idle must not use up the open files.
                ("grpc.max_allowed_incoming_connections", most_connections()),
                ("grpc.max_connection_idle_ms", 60_000),
                ("grpc.server_handshake_timeout_ms", 5_000),
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
            raise OSError(
                f"Cannot listen on {where}:{port} ({shortened(error)})."
            ) from error
        return f"{where}:{bound}"

    def start(self) -> None:
        """Answer from now on; health reports that the server is not ready."""
        self._health.add_to(self._server)
        predictions, others, _, reflection = self._arrivals
        add_services(
            self._core,
            (self._predictions, predictions),
            (self._others, others),
            self._rules,
            self._server,
        )
        names = [*filter(None, _SERVICES), HEALTH]
        Reflection(names, reflection, self._rules.access).add_to(self._server)
        self._is_started = True
        self._server.start()
        threading.Thread(
            target=self._end_late_calls, name="grpc-limits", daemon=True
        ).start()

    def ready(self) -> None:
        """Report from now on that the server is healthy."""
        self._health.set(True)

    def drain(self, seconds: float = GRACE_SECONDS) -> None:
        """Refuse new calls and report as not serving; calls under way go on.

        Does not wait. `close` ends the calls that are still under way when the time is
        over; when this is called again, the earliest end holds.

        Args:
            seconds: Time for the calls under way, from now on.
        """
        self._ends_at = min(self._ends_at, time.monotonic() + seconds)
        self._predictions.close()
        self._others.close()
        self._health.set(False, is_final=True)

    def close(self, seconds: float = GRACE_SECONDS) -> None:
        """Drain, wait for the calls under way, and free the port.

        Args:
            seconds: Time for the calls under way, from now on; what is left of the time
                that `drain` gave, if that is less.
        """
        self.drain(seconds)
        if not self._is_started:
            # gRPC 1.85 frees the port only of a server that has been started.
            self._server.start()
        finished = self._predictions.wait_until_empty(self._seconds_left())
        # The last replies may still be on their way; a watched health never ends.
        last = min(_LAST_REPLY_SECONDS, self._seconds_left())
        self._server.stop(last if finished else None).wait()
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _seconds_left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def _end_late_calls(self) -> None:
        while not self._closed.wait(self._look_seconds):
            for arrivals in self._arrivals:
                arrivals.limit.end_late_calls()

    def __enter__(self) -> Self:
        """Return the server itself; the end of the block closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the server."""
        self.close()
