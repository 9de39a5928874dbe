"""Receive the message of a call, within a time limit.

gRPC hands a call over when its headers are there, and its message comes when the client
sends it. So methods are registered as if they took a stream, which is the same on the
wire: then it is known that a message is awaited, and the wait can be ended.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from ...web.status import StatusCode, StatusError
from .message_memory import MessageMemory
from .message_parts import has_more_parts

MOST_PARTS = 2**18
"""Strings, dimensions and other parts of a request to predict."""


class CallLimit:
    """Ends calls that hold a thread for longer than they may.

    Args:
        seconds: How long the block of `hold` may take, more than 0.
        most: Calls that may be in the block at one time, at least 1. With one more, the
            one that is longest in it is ended: a client that wants to keep others out
            loses its own calls first. None for any number.
        patience: Seconds after which `make_room` may end a call.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        seconds: float,
        most: int | None = None,
        *,
        patience: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        # In the order of their ends, because all may take the same time.
        self._ends: dict[grpc.ServicerContext, float] = {}

    @contextlib.contextmanager
    def hold(self, call: grpc.ServicerContext) -> Iterator[None]:
        """End the call, if the block takes too long.

        A block inside of another one of the call has the time of the outer one.
        """
        with self._lock:
            is_inside = call in self._ends
            if not is_inside:
                self._begin(call)
        try:
            yield
        finally:
            if not is_inside:
                with self._lock:
                    self._ends.pop(call, None)

    def _begin(self, call: grpc.ServicerContext) -> None:
        if self._most is not None and len(self._ends) >= self._most:
            self._cancel(next(iter(self._ends)))
        self._ends[call] = self._clock() + self._seconds

    def end_late_calls(self) -> None:
        """End the calls whose time is over. To be called again and again."""
        now = self._clock()
        with self._lock:
            for call in [call for call, end in self._ends.items() if end <= now]:
                self._cancel(call)

    def make_room(self) -> bool:
        """End the call that is longest in the block, if it has been so for long.

        Returns:
            Whether there was one.
        """
        since = self._clock() + self._seconds - self._patience
        with self._lock:
            call = next(iter(self._ends), None)
            if call is None or self._ends[call] > since:
                return False
            self._cancel(call)
            return True

    def _cancel(self, call: grpc.ServicerContext) -> None:
        del self._ends[call]
        call.cancel()


@dataclass(frozen=True)
class Arrivals:
    """Bounds on the messages of several methods.

    Attributes:
        limit: On the time in which a message must come.
        memory: For all of them together.
        longest: Of one message in bytes; None for what the server takes.
    """

    limit: CallLimit
    memory: MessageMemory
    longest: int | None = None

    @contextlib.contextmanager
    def receive(
        self,
        messages: Iterator[bytes],
        call: grpc.ServicerContext,
        kind: Any,
        path: str,
        longest: int | None = None,
    ) -> Iterator[tuple[Any, int]]:
        """Wait for the message of a call, and hold its memory until the block ends.

        Args:
            messages: What the client sends. As in every server, what comes after the
                first message is not looked at.
            call: The call.
            kind: Class of the message.
            path: Of the method, for the error.
            longest: Of its messages in bytes; None for what the attribute says. Where
                neither says it, the message is a `PredictRequest`.

        Yields:
            The message, and its length in bytes.

        Raises:
            StatusError: It does not come or is none, with gRPC's text; it is too long
                or has too many parts; or the call ended before.
        """
        with contextlib.ExitStack() as held:
            with self.limit.hold(call):
                held.enter_context(self.memory.hold(call))
                data = _received(messages, path)
            length = len(data)
            longest = self.longest if longest is None else longest
            if longest is None:
                if has_more_parts(data, MOST_PARTS):
                    raise StatusError(
                        StatusCode.RESOURCE_EXHAUSTED,
                        f"A message to {path} may have at most {MOST_PARTS} strings "
                        "and other parts. Send fewer instances, and numbers in "
                        "`tensor_content`.",
                    )
            elif length > longest:
                raise StatusError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"A message to {path} may have at most {longest} bytes. "
                    f"Received: {length}.",
                )
            self.memory.arrived(call, length)
            message = _parsed(data, kind)
            del data
            yield message, length


def _received(messages: Iterator[bytes], path: str) -> bytes:
    try:
        return next(messages)
    except StopIteration:
        raise StatusError(
            StatusCode.UNIMPLEMENTED, f'"{path}" requires exactly one request message.'
        ) from None
    except grpc.RpcError:
        raise StatusError(StatusCode.CANCELLED, "Cancelled") from None


def _parsed(data: bytes, kind: Any) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError:
        raise StatusError(
            StatusCode.INTERNAL, "Exception deserializing request!"
        ) from None
