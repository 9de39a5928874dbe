"""Run slow work of a web application in threads, bounded in number and in time."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

Result = TypeVar("Result")

TIMEOUT_SECONDS = 30.0
"""How long a request waits for its result unless another limit is set."""


class Room:
    """A limit on the requests in progress at one time; others are refused.

    Args:
        most: The limit, at least 1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._inside = 0

    def enter(self) -> None:
        """Take a place, which `leave` gives back.

        Raises:
            HTTPException: 503, all places are taken.
        """
        with self._lock:
            if self._inside >= self._most:
                raise HTTPException(
                    503,
                    "The service has too much to do. Try again in a moment.",
                    {"retry-after": "1"},
                )
            self._inside += 1

    def leave(self) -> None:
        """Give a place back."""
        with self._lock:
            self._inside -= 1

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place until the block ends.

        Raises:
            HTTPException: 503, all places are taken.
        """
        self.enter()
        try:
            yield
        finally:
            self.leave()


class BoundedWork:
    """Runs functions in threads; beyond a number of them, requests are refused.

    Work whose request was given up counts until it ends, so that impatient clients
    cannot pile it up.

    Args:
        name: Of the threads.
        threads: How many run at one time, at least 1.
        waiting: How many more wait, at least 0.
        seconds: How long a request waits for its result, above 0.
    """

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = Room(threads + waiting)
        self._seconds = seconds

    async def run(self, work: Callable[[], Result], *, late: str = "") -> Result:
        """Return what a function returns.

        Args:
            work: The function.
            late: Advice for a client that gets no result in time, for the error.

        Raises:
            HTTPException: 503 if too much is in progress already, 504 if it took too
                long.
        """
        self._room.enter()
        # What is known of the request, such as its id, goes with the work.
        future = self._pool.submit(contextvars.copy_context().run, work)
        future.add_done_callback(self._leave)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self._seconds)
        if not done:
            waiting.cancel()  # and the work itself, where it has not begun
            text = f"There was no result within {self._seconds:g} seconds."
            raise HTTPException(504, f"{text} {late}".rstrip())
        return waiting.result()

    def _leave(self, future: Future[Any]) -> None:
        self._room.leave()

    def close(self) -> None:
        """Start no further work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
