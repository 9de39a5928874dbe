"""Bound the memory of all gRPC messages that arrive or are worked on at one time."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import grpc

from ...web.memory_limit import default_message_bytes
from ...web.status import StatusCode, StatusError

_LOOK_SECONDS = 0.2


class MessageMemory:
    """A budget of bytes for messages; calls beyond it wait before theirs arrives.

    gRPC tells how long a message is when all of it is there. So one that arrives counts
    as the longest, and then as what it is, until its call has been answered. Whoever
    came first is first, until that one has waited for long: then clients that dribble
    are likely to be in front, and whoever came last is first.

    Example:
        >>> memory = MessageMemory(10**9, longest_bytes=64 * 2**20)
        >>> with memory.hold(call):
        ...     message = next(messages)
        ...     memory.arrived(call, len(message))
        ...     answer(message)

    Args:
        most_bytes: The budget, at least 1; by default that of
            `serving.web.memory_limit`. One message always fits.
        longest_bytes: The longest message, at least 1.
        patience: Seconds after which a message that still arrives is given up, where
            others wait: clients that dribble lose their own calls first. Also how long
            those who came first are first.
        copies: How often a message is in memory: as it came, and as the arrays that are
            made of it.
        clock: Returns the time in seconds.

    Attributes:
        most_bytes: The budget.
    """

    def __init__(
        self,
        most_bytes: int | None = None,
        *,
        longest_bytes: int,
        patience: float = 5.0,
        copies: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most_bytes = default_message_bytes() if most_bytes is None else most_bytes
        self._longest = copies * longest_bytes
        self._copies = copies
        self._patience = patience
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[object, float] = {}  # oldest first
        self._arriving: dict[grpc.ServicerContext, float] = {}  # oldest first
        self._sizes: dict[grpc.ServicerContext, int] = {}

    @contextlib.contextmanager
    def hold(self, call: grpc.ServicerContext) -> Iterator[None]:
        """Hold memory for the message of a call until the block ends; wait for it.

        Raises:
            StatusError: CANCELLED, the call ended while it waited.
        """
        self._take(call)
        try:
            yield
        finally:
            with self._changed:
                self._arriving.pop(call, None)
                del self._sizes[call]
                self._changed.notify_all()

    def arrived(self, call: grpc.ServicerContext, length: int) -> None:
        """Hold no more than a message takes, now that its length is known."""
        with self._changed:
            self._arriving.pop(call, None)
            self._sizes[call] = self._copies * length
            self._changed.notify_all()

    def _take(self, call: grpc.ServicerContext) -> None:
        turn = object()
        with self._changed:
            self._waiting[turn] = self._clock()
            try:
                while not (is_next := self._next() is turn) or not self._fits():
                    if not call.is_active():
                        raise StatusError(StatusCode.CANCELLED, "Cancelled")
                    if is_next:
                        self._give_up_oldest()
                    self._changed.wait(_LOOK_SECONDS)
            finally:
                del self._waiting[turn]
                self._changed.notify_all()
            self._arriving[call] = self._clock()
            self._sizes[call] = self._longest

    def _next(self) -> object:
        first = next(iter(self._waiting))
        if self._clock() - self._waiting[first] < self._patience:
            return first
        return next(reversed(self._waiting))

    def _fits(self) -> bool:
        held = sum(self._sizes.values())
        return not held or held + self._longest <= self.most_bytes

    def _give_up_oldest(self) -> None:
        call = next(iter(self._arriving), None)
        if call and self._clock() - self._arriving[call] >= self._patience:
            del self._arriving[call]
            call.cancel()
