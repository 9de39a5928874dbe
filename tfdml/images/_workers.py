"""Read images in several processes at once.

Python reads one image at a time in a process, however many threads it has: what is
between two calls of a decoder needs its lock.
"""

import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.spawn import get_executable
from typing import IO, Any, cast

import numpy as np

from tfdml.images._forms import Wanted
from tfdml.images._view import RandomView
from tfdml.images._worker import Answer, Asked, Task, open_memory, received
from tfdml.messages import cut

_MOST_AT_ONCE = 8  # images that a process is asked for in one message
_MEMORY = 64 * 2**20  # bytes of views that are shared, unless single ones are larger
_WAIT = 5.0  # seconds for a process to end, after which it is killed
_ALONE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CODE = "from tfdml.images._worker import main; main()"


class WorkerDiedError(RuntimeError):
    """A process that reads images has ended."""


@dataclass(eq=False)
class _Call:
    """The images of one call, and what became of them.

    Args:
        images: Which are wanted.
        views: Where their views go; None asks for digests.
    """

    images: Sequence[Wanted]
    views: np.ndarray | None
    results: list[Exception | str | None] = field(init=False)
    left: int = field(init=False)
    done: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self.left = len(self.images)
        self.results = [None] * self.left


_Item = tuple[_Call, int]
"""A call and the place of an image in it."""


class Workers:
    """Processes that read images, and keep those that fit.

    May be used from several threads; calls that come together are answered together.
    The processes start when they are needed. An image that a process keeps is read by
    it again, unless another one has nothing else to do.

    Args:
        count: How many processes.
        random_view: How views are cut.
        max_pixels: Width times height above which a file cannot be read.
        cache_bytes: Most bytes of images to keep, in all processes together.
    """

    def __init__(
        self,
        count: int,
        random_view: RandomView,
        max_pixels: int | None,
        cache_bytes: int,
    ) -> None:
        self._task = (random_view, max_pixels, cache_bytes // count)
        size = random_view.view.image_size
        self._view_shape = (size, size, 3)
        # Each process has two halves: it fills one while the other is emptied.
        fitting = _MEMORY // (2 * count * 3 * size * size)
        self._at_once = max(1, min(_MOST_AT_ONCE, fitting))
        self._count = count
        self._lock = threading.Condition()
        self._calls: set[_Call] = set()
        self._waiting: deque[_Item] = deque()
        self._own: list[deque[_Item]] = [deque() for _ in range(count)]
        self._keeper: dict[int, int] = {}
        self._processes: list[_Process] = []
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None

    def views(self, images: Sequence[Wanted], views: np.ndarray) -> None:
        """Read images.

        Args:
            images: Which.
            views: Where their views go, uint8 `[n, image_size, image_size, 3]`.

        Raises:
            UnreadableImageError, OSError, MemoryError, ValueError: The first image that
                could not be read met it.
            WorkerDiedError: A process has ended.
        """
        for result in self._called(_Call(images, views)):
            if isinstance(result, Exception):
                raise result

    def digests(self, images: Sequence[Wanted]) -> list[Exception | str]:
        """Read images once and return the digest of each, or the error that it met.

        Raises:
            WorkerDiedError: A process has ended.
        """
        return [r for r in self._called(_Call(images, None)) if r is not None]

    def close(self) -> None:
        """End the processes; calls that wait for images fail."""
        self._fail(WorkerDiedError("The processes that read images were closed."))
        _end_all(self._processes)
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.forget()

    def _called(self, call: _Call) -> list[Exception | str | None]:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._start()
            self._calls.add(call)
            for place, image in enumerate(call.images):
                keeper = self._keeper.get(image.position)
                queue = self._waiting if keeper is None else self._own[keeper]
                queue.append((call, place))
            self._lock.notify_all()
        if call.images:
            call.done.wait()
        self._calls.discard(call)
        if call.failure is not None:
            raise call.failure
        return call.results

    def _start(self) -> None:
        """Start the processes, if they have not been."""
        if self._processes:
            return
        part = 2 * self._at_once * int(np.prod(self._view_shape))
        size = part * self._count
        shape = (2, self._at_once, *self._view_shape)
        started: list[_Process] = []
        with _shared_memory(size) as (name, memory):
            try:
                for begin in range(0, size, part):
                    task = Task(*self._task, name, size, begin)
                    views = memory[begin : begin + part].reshape(shape)
                    started.append(_Process(task, views))
            except OSError:
                _end_all(started)
                raise
        self._processes = started
        for number in range(self._count):
            thread = threading.Thread(target=self._feed, args=(number,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _feed(self, number: int) -> None:
        """Ask a process for images, as long as there are some that are wanted."""
        process = self._processes[number]
        asked: deque[tuple[list[_Item], int]] = deque()
        half = 0
        try:
            while True:
                while len(asked) < 2:
                    items = self._take(number, wait=not asked)
                    if not items:
                        break
                    asked.append((items, half))
                    process.ask(_asked(items, half * self._at_once))
                    half = 1 - half
                if not asked:
                    return
                answer = process.answer()
                self._note(number, *asked.popleft(), answer)
        except (OSError, EOFError, pickle.UnpicklingError):
            items = [item for some, _ in asked for item in some]
            names = [call.images[place].name for call, place in items]
            self._fail(WorkerDiedError(process.obituary(names)))
        except Exception as error:
            self._fail(error)

    def _take(self, number: int, *, wait: bool) -> list[_Item]:
        """Take some images for a process; none where there are none, or all is over."""
        with self._lock:
            while self._failure is None:
                items: list[_Item] = []
                # The last: where nothing else is left, the work of the busiest.
                busiest = max(self._own, key=len)
                for queue in (self._own[number], self._waiting, busiest):
                    while queue and len(items) < self._at_once:
                        # The images of a message are all viewed, or all digested.
                        if items and _is_viewed(queue[0]) != _is_viewed(items[0]):
                            break
                        items.append(queue.popleft())
                    if items:
                        return items
                if not wait:
                    break
                self._lock.wait()
        return []

    def _note(self, number: int, items: list[_Item], half: int, answer: Answer) -> None:
        """Take what a process has answered."""
        views = self._processes[number].views[half]
        for i, (call, place) in enumerate(items):
            if call.views is not None and answer.results[i] is None:
                call.views[place] = views[i]
        with self._lock:
            for position in answer.kept:
                self._keeper.setdefault(position, number)
            for (call, place), result in zip(items, answer.results, strict=True):
                call.results[place] = result
                call.left -= 1
                if not call.left:
                    call.done.set()

    def _fail(self, error: Exception) -> None:
        """End all calls by an error, the first; there will be no others."""
        with self._lock:
            self._failure = self._failure or error
            for queue in (self._waiting, *self._own):
                queue.clear()
            for call in self._calls:
                call.failure = self._failure
                call.done.set()
            self._lock.notify_all()


class _Process:
    """A process that reads images.

    Args:
        task: What it does.
        views: Its part of the shared memory, uint8 `[2, n, size, size, 3]`.
    """

    def __init__(self, task: Task, views: np.ndarray) -> None:
        self.views = views
        # What can be imported here can be imported there. No `__main__` is: a script
        # that trains needs no guard.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        given: dict[str, Any] = {}
        if isinstance(task.memory, int):
            given["pass_fds"] = (task.memory,)
        self._process = subprocess.Popen(
            [get_executable(), "-P", "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_ALONE, "1") | {"PYTHONPATH": path},
            **given,
        )
        self._requests = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)
        self._send(task)

    def ask(self, images: Asked) -> None:
        """Ask for images.

        Raises:
            OSError: The process has ended.
        """
        self._send(images)

    def answer(self) -> Answer:
        """Wait for the answer to the first that has been asked and is not answered.

        Raises:
            EOFError, OSError, pickle.UnpicklingError: The process has ended.
        """
        answer: Answer = received(self._answers)
        return answer

    def hang_up(self) -> None:
        """Let the process end after what it does now."""
        with suppress(OSError, ValueError):
            self._requests.close()

    def end(self) -> int:
        """Wait for the end of the process and return its code."""
        try:
            return self._process.wait(_WAIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def forget(self) -> None:
        """Close what the process answered through; nobody may wait for it."""
        self._answers.close()

    def obituary(self, names: list[str]) -> str:
        """Return a message on how the process ended, and over which images."""
        code = self.end()
        killed = " (killed, as where there is not enough memory)" if code == -9 else ""
        few = [cut(name) for name in (names[:1] + names[-1:])]
        return (
            f"A process that reads images ended with code {code}{killed}. It had been "
            f"asked for {len(names)} images, from {few[0]} to {few[-1]}. If it happens "
            "again, look at these; fewer processes (`workers`) need less memory."
        )

    def _send(self, message: Any) -> None:
        pickle.dump(message, self._requests, pickle.HIGHEST_PROTOCOL)
        self._requests.flush()


def _end_all(processes: Sequence[_Process]) -> None:
    for process in processes:
        process.hang_up()
    for process in processes:
        process.end()


def _asked(items: Sequence[_Item], first: int) -> Asked:
    images = [call.images[place] for call, place in items]
    return Asked(images, first if _is_viewed(items[0]) else None)


def _is_viewed(item: _Item) -> bool:
    return item[0].views is not None


@contextmanager
def _shared_memory(size: int) -> Iterator[tuple[int | str, np.ndarray]]:
    """Open memory that other processes can open meanwhile, and that ends with them all.

    It is not in /dev/shm, which is small in a container.

    Args:
        size: Bytes.

    Raises:
        OSError: There is not so much.
    """
    if sys.platform == "win32":
        name = f"tfdml-{uuid.uuid4()}"
        yield name, np.frombuffer(open_memory(name, size), np.uint8)
        return
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tfdml-images")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.truncate(descriptor, size)
        memory: mmap.mmap = open_memory(descriptor, size)
        yield descriptor, np.frombuffer(memory, np.uint8)
    finally:
        os.close(descriptor)
