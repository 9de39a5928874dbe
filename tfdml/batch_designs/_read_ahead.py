"""Read the batches of a run before they are asked for."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class ReadAhead:
    """Read batches, some of them before they are asked for.

    Batches asked for in another order than that of the run are not read ahead.

    Args:
        read: Returns the data of a batch, by its number. Called by several threads.
        count: How many batches are read ahead; 0: none.
    """

    def __init__(self, read: Callable[[int], Any], count: int) -> None:
        self._read = read
        self._count = count
        self._last: int | None = None
        self._futures: dict[int, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(max(1, count), "batches")

    def batch(self, step: int) -> Any:
        """Return a batch; the next ones are read meanwhile.

        An error of reading a batch is raised when that batch is asked for.
        """
        in_order = self._last is None or step - self._last in (0, 1)
        self._last = step
        if not (self._count and in_order):
            return self._read(step)
        # Each of these is whole by itself: several threads may ask.
        for number in list(self._futures):
            if not step <= number <= step + self._count:
                self._futures.pop(number, None)
        wanted, *_ = [self._future(step + i) for i in range(self._count + 1)]
        return wanted.result()

    def _future(self, step: int) -> Future[Any]:
        found = self._futures.get(step)
        return found or self._futures.setdefault(
            step, self._pool.submit(self._read, step)
        )
