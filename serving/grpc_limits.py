"""How many gRPC calls are let in, whose turn it is to predict, and until when."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from serving.servable import ServableError, StatusCode

__all__ = ["CallGate", "turn"]

_LOOK_SECONDS = 0.5
"""How often a call that waits for its turn looks whether its client is still there."""


class CallGate:
    """Lets a bounded number of calls in, and none any more once it is closed.

    Args:
        most: Calls that may be inside at one time, at least 1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0
        self._is_open = True
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Be inside while the block runs.

        Raises:
            ServableError: RESOURCE_EXHAUSTED if too many are inside, UNAVAILABLE if the
                gate is closed.
        """
        with self._changed:
            self._check_open()
            if self._inside >= self._most:
                raise ServableError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"More than {self._most} calls at one time. Retry.",
                )
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def pass_by(self) -> Iterator[None]:
        """Run the block without counting as inside.

        Raises:
            ServableError: UNAVAILABLE, the gate is closed.
        """
        self._check_open()
        yield

    def close(self) -> None:
        """Let nobody in any more; those inside stay."""
        self._is_open = False

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait, no longer than this, until nobody is inside; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, seconds)

    def _check_open(self) -> None:
        if not self._is_open:
            raise ServableError(StatusCode.UNAVAILABLE, "The server is shutting down.")


@contextlib.contextmanager
def turn(turns: threading.Semaphore, call: Any) -> Iterator[None]:
    """Wait for a turn to predict, and have it while the block runs.

    A call whose deadline passes, or whose client goes, while it waits never has its
    turn, so that the time of the machine goes to those that are still awaited.

    Args:
        turns: As many as may predict at one time, over all protocols.
        call: The `grpc.ServicerContext` of the call.

    Raises:
        ServableError: DEADLINE_EXCEEDED or CANCELLED, it waited for too long.
    """
    _wait(turns, call)
    try:
        yield
    finally:
        turns.release()


def _wait(turns: threading.Semaphore, call: Any) -> None:
    while call.is_active():
        remaining = call.time_remaining()
        if remaining is None:
            remaining = _LOOK_SECONDS
        if remaining <= 0:
            raise ServableError(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if turns.acquire(timeout=min(remaining, _LOOK_SECONDS)):
            if call.is_active():
                return
            turns.release()
    raise ServableError(StatusCode.CANCELLED, "The call was cancelled.")
