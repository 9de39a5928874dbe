"""Bound the number of gRPC calls in progress."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from ...web.status import StatusCode, StatusError


class CallGate:
    """Lets a bounded number of calls in, and none any more once it is closed.

    Args:
        most: Calls that may be inside at one time, at least 1.
        make_room: Ends a call that is inside, if it may, and returns whether it did.
    """

    def __init__(self, most: int, make_room: Callable[[], bool]) -> None:
        self._most = most
        self._make_room = make_room
        self._inside = 0
        self._is_open = True
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Be inside while the block runs.

        Raises:
            StatusError: RESOURCE_EXHAUSTED if too many are inside, UNAVAILABLE if the
                gate is closed.
        """
        with self._changed:
            if not self._is_open:
                raise StatusError(
                    StatusCode.UNAVAILABLE, "The server is shutting down."
                )
            if self._inside >= self._most and not self._make_room():
                raise StatusError(
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

    def close(self) -> None:
        """Let nobody in any more; those inside stay."""
        self._is_open = False

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until nobody is inside, and return whether it came to that in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, seconds)
