"""Work on a long list, a few batches at a time; the results keep its order."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def in_order(
    work: Callable[[list[S]], T],
    items: Iterable[S],
    *,
    batch_size: int,
    concurrency: int,
    abandon: Callable[[], object] = lambda: None,
) -> Generator[T]:
    """Give batches of items to threads, and yield the results in the items' order.

    Items are taken when a thread will soon need them: at most `2 * concurrency` batches
    are waiting, in work or waiting to be yielded, however long the list and however
    slow who takes the results. What a batch raises is raised in its place, after the
    results before it; the batches behind it that have not begun are dropped. What
    `items` raises comes in its place too, after the results of all items before it.

    Args:
        work: Takes one batch; called in several threads.
        items: May be endless.
        batch_size: Items in a batch, at least 1.
        concurrency: Batches in work at one time, at least 1.
        abandon: Called when nobody wants further results. Work that has begun is
            waited for: this is the place to have it end soon.

    Yields:
        One result per batch.
    """
    rest = iter(items)
    ahead: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="embed")
    failure: Exception | None = None
    try:
        while True:
            while failure is None and len(ahead) < 2 * concurrency:
                batch, failure = _next_batch(rest, batch_size)
                if not batch:
                    break
                # With the id of the request that this is done for.
                ahead.append(pool.submit(copy_context().run, work, batch))
            if not ahead:
                break
            yield ahead.popleft().result()
        if failure is not None:
            raise failure
    finally:
        abandon()
        pool.shutdown(cancel_futures=True)


def _next_batch(rest: Iterator[S], batch_size: int) -> tuple[list[S], Exception | None]:
    """Take a batch, and what was raised behind its last item."""
    batch: list[S] = []
    try:
        for item in islice(rest, batch_size):
            batch.append(item)  # one by one, as an error must not lose those before it
    except Exception as error:
        return batch, error
    return batch, None
