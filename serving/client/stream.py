"""Work on a long list, a few batches at a time, with the results in its order."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

__all__ = ["in_order"]

S = TypeVar("S")
T = TypeVar("T")


def in_order(
    work: Callable[[list[S]], T],
    items: Iterable[S],
    *,
    batch_size: int,
    concurrency: int,
) -> Generator[T]:
    """Give batches of items to threads, and yield the results in the items' order.

    Items are taken when a thread will soon need them: at most `2 * concurrency` batches
    are waiting, in work or waiting to be yielded, however long the list and however
    slow who takes the results. What a batch raises is raised in its place, after the
    results before it; the batches behind it that have not begun are dropped.

    Args:
        work: Takes one batch; called in several threads.
        items: May be endless.
        batch_size: Items in a batch, at least 1.
        concurrency: Batches in work at one time, at least 1.

    Yields:
        One result a batch.
    """
    rest = iter(items)
    ahead: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="embed")
    try:
        while True:
            while len(ahead) < 2 * concurrency:
                batch = list(islice(rest, batch_size))
                if not batch:
                    break
                ahead.append(pool.submit(work, batch))
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
