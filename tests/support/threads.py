"""Run calls at the same time, or one at a chosen moment of another."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls, each in a thread of its own; return their results, or raise."""
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
    return [one.result() for one in running]


def before_next(monkeypatch, owner, name, action):
    """Do something before the next call of a function, as another might."""
    original = getattr(owner, name)

    def call(*arguments, **options):
        monkeypatch.setattr(owner, name, original)
        action()
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


@contextlib.contextmanager
def meanwhile(*calls: Callable[[], Any]) -> Iterator[list[Future[None]]]:
    """Repeat calls, each in a thread, until a `with` block ends; then raise errors.

    The block is given the threads; one whose call has failed is done before its end.
    """
    done = threading.Event()

    def repeat(call: Callable[[], Any]) -> None:
        while not done.is_set():
            call()

    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(repeat, call) for call in calls]
        try:
            yield running
        finally:
            done.set()
    for one in running:
        one.result()
