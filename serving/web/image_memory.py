"""Bound the memory of all images that are decoded at one time.

An image of half a megabyte may unpack to a gigabyte, so a limit on the pixels of one
says little about the memory of several.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

from .memory_limit import default_image_bytes, give_back_large_blocks
from .status import StatusCode, StatusError

_MEGABYTE = 10**6


class ImageMemory:
    """A budget of bytes for images that are being decoded; those beyond it wait.

    The first one also has the process give freed memory back to the system at once:
    what threads keep would not be free for others.

    Whoever came first is first, so that small images cannot keep a large one out. Any
    number of threads may use it.

    Example:
        >>> memory = ImageMemory(10**9)
        >>> with memory.hold(width * height * 4, seconds=30.0):
        ...     pixels = decode(image)

    Args:
        most_bytes: The budget, at least 1; by default that of
            `serving.web.memory_limit`.
        option: The option that sets the budget, for errors.

    Attributes:
        most_bytes: The budget.

    Raises:
        ValueError: The budget is out of range.
    """

    def __init__(
        self, most_bytes: int | None = None, *, option: str = "--image-memory-bytes"
    ) -> None:
        if most_bytes is not None and most_bytes < 1:
            raise ValueError(
                f"`most_bytes` must be at least 1. Received: most_bytes={most_bytes}."
            )
        give_back_large_blocks()
        self.most_bytes = default_image_bytes() if most_bytes is None else most_bytes
        self._option = option
        self._changed = threading.Condition()
        self._held = 0
        self._waiting: deque[object] = deque()

    @contextlib.contextmanager
    def hold(self, size: int, seconds: float, *, what: str = "image") -> Iterator[None]:
        """Hold memory until the block ends; wait for it first.

        Args:
            size: Bytes, at least 0. Must cover the image and the copies of it that are
                made while it is decoded.
            seconds: How long to wait at most.
            what: What is decoded, for the error.

        Raises:
            StatusError: As in `take`.
        """
        self.take(size, seconds, what=what)
        try:
            yield
        finally:
            self.give_back(size)

    def take(self, size: int, seconds: float, *, what: str = "image") -> None:
        """Wait until so much memory is free, and take it until `give_back`.

        Args:
            size: Bytes, at least 0.
            seconds: How long to wait at most.
            what: What is decoded, for the error.

        Raises:
            StatusError: INVALID_ARGUMENT, it is more than the whole budget, so that
                no wait would help; UNAVAILABLE, it was not free in time.
        """
        self.check(size, what=what)
        turn = object()
        with self._changed:
            self._waiting.append(turn)
            try:
                has_come = self._changed.wait_for(
                    lambda: self._waiting[0] is turn and self._fits(size), seconds
                )
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
            if not has_come:
                raise StatusError(
                    StatusCode.UNAVAILABLE,
                    "The service has too much to decode. Try again in a moment.",
                )
            self._held += size

    def check(self, size: int, *, what: str = "image") -> None:
        """Refuse what is more than the whole budget, so that no wait would help.

        Args:
            size: Bytes, at least 0.
            what: What is decoded, for the error.

        Raises:
            StatusError: INVALID_ARGUMENT.
        """
        if size > self.most_bytes:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"The {what} needs {_megabytes(size)} MB of memory to be decoded; this "
                f"service has {_megabytes(self.most_bytes)} MB for it. Send a smaller "
                f"{what}; or give the service more memory, or more of it to this by "
                f"`{self._option}`.",
            )

    def give_back(self, size: int) -> None:
        """Give back what `take` took."""
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return self._held + size <= self.most_bytes


def _megabytes(size: int) -> str:
    return f"{-(-size // _MEGABYTE):,}"
