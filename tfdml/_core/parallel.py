"""Do the same work on parts of an array on all cores."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[slice], Result], count: int, *, least: int = 1
) -> list[Result]:
    """Call a function for parts of `range(count)` at the same time.

    NumPy releases the interpreter while it works on large arrays.

    Args:
        function: Gets a slice and must not change what other slices need.
        count: How many items there are.
        least: The number of items from which on a part is worth a thread.

    Returns:
        The results in the order of the slices, which cover all items.
    """
    threads = max(1, min(cpu_cores(), count // least))
    bounds = [count * i // threads for i in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    if threads == 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, parts))


def behind(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Call a function for items in threads while the next items are being made.

    Args:
        function: Gets an item; several run at the same time.
        items: Taken one after the other by the thread that iterates, one for each core
            ahead of the results at most.

    Yields:
        The results in the order of the items.
    """
    threads = cpu_cores()
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def cpu_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
