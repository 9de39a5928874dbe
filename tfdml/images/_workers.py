"""Read images in several processes at once.

Python reads one image at a time in a process, however many threads it has: what is
between two calls of a decoder needs its lock.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.spawn import get_executable
from typing import IO, Any, cast

import numpy as np

from tfdml.images._forms import Wanted
from tfdml.images._shared_views import SharedViews
from tfdml.images._view import RandomView
from tfdml.images._worker import Answer, Asked, Task, received
from tfdml.messages import cut

_MOST_AT_ONCE = 16  # images that a process is asked for in one message
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
        begin: Where their views go in the shared memory; None asks for digests.
    """

    images: Sequence[Wanted]
    begin: int | None
    results: list[Exception | str | None] = field(init=False)
    left: int = field(init=False)
    done: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None
    is_abandoned: bool = False

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
        scaled_decoding: As for `Forms`.
    """

    def __init__(
        self,
        count: int,
        random_view: RandomView,
        max_pixels: int | None,
        cache_bytes: int,
        *,
        scaled_decoding: bool,
    ) -> None:
        own_bytes = cache_bytes // count
        self._task = (random_view, max_pixels, scaled_decoding, own_bytes)
        size = random_view.view.image_size
        self._views = SharedViews((size, size, 3))
        self._count = count
        self._lock = threading.Condition()
        self._calls: set[_Call] = set()
        self._waiting: deque[_Item] = deque()
        self._own: list[deque[_Item]] = [deque() for _ in range(count)]
        self._keeper: dict[int, int] = {}
        self._processes: list[_Process] = []
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None

    def views(self, images: Sequence[Wanted]) -> np.ndarray:
        """Read images.

        Args:
            images: Which.

        Returns:
            Their views, uint8 `[n, image_size, image_size, 3]`.

        Raises:
            UnreadableImageError, OSError, MemoryError, ValueError: The first image that
                could not be read met it.
            WorkerDiedError: A process has ended.
        """
        most = self._views.most
        if len(images) > most or not images:
            blocks = range(0, len(images), most)
            views = np.empty((len(images), *self._views.view_shape), np.uint8)
            for start in blocks:
                block = slice(start, start + most)
                views[block] = self.views(images[block])
            return views
        begin = self._views.take(len(images))
        for result in self._called(_Call(images, begin)):
            if isinstance(result, Exception):
                self._views.drop(begin)
                raise result
        return self._views.array(begin, len(images))

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
        try:
            if call.images:
                call.done.wait()
        except BaseException:  # Ctrl-C, say; the processes go on with its images
            with self._lock:
                call.is_abandoned = True
                self._drop_if_over(call)
            raise
        finally:
            with self._lock:
                self._calls.discard(call)
        if call.failure is not None:
            raise call.failure
        return call.results

    def _start(self) -> None:
        """Start the processes, if they have not been."""
        if self._processes:
            return
        started: list[_Process] = []
        with self._views.open() as name:
            task = Task(*self._task, name, self._views.size)
            try:
                for _ in range(self._count):
                    started.append(_Process(task))
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
        asked: deque[list[_Item]] = deque()
        try:
            while True:
                while len(asked) < 2:  # it does not wait for the next ones
                    items = self._take(number, wait=not asked)
                    if not items:
                        break
                    asked.append(items)
                    process.ask([self._request(item) for item in items])
                if not asked:
                    return
                answer = process.answer()
                self._note(number, asked.popleft(), answer)
        except (OSError, EOFError, pickle.UnpicklingError):
            names = [call.images[i].name for items in asked for call, i in items]
            self._fail(WorkerDiedError(process.obituary(names)))
        except Exception as error:
            self._fail(error)

    def _take(self, number: int, *, wait: bool) -> list[_Item]:
        """Take some images for a process; none where there are none, or all is over."""
        with self._lock:
            while self._failure is None:
                # Last, where nothing else is left, the work of the busiest.
                busiest = max(self._own, key=len)
                fair = -(-len(self._waiting) // (2 * self._count))
                for queue, share in (
                    (self._own[number], _MOST_AT_ONCE),
                    (self._waiting, fair),
                    (busiest, 1),
                ):
                    count = min(len(queue), share, _MOST_AT_ONCE)
                    if count:
                        return [queue.popleft() for _ in range(count)]
                if not wait:
                    break
                self._lock.wait()
        return []

    def _request(self, item: _Item) -> tuple[Wanted, int | None]:
        call, number = item
        wanted = call.images[number]
        if call.begin is None:
            return wanted, None
        return wanted, call.begin + number * self._views.view_bytes

    def _note(self, number: int, items: list[_Item], answer: Answer) -> None:
        """Take what a process has answered."""
        with self._lock:
            for position in answer.kept:
                self._keeper.setdefault(position, number)
            for (call, place), result in zip(items, answer.results, strict=True):
                call.results[place] = result
                call.left -= 1
                if not call.left:
                    call.done.set()
                    self._drop_if_over(call)

    def _drop_if_over(self, call: _Call) -> None:
        """Give up the room of a call that nobody waits for, once all was written."""
        if call.is_abandoned and not call.left and call.begin is not None:
            self._views.drop(call.begin)

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
    """

    def __init__(self, task: Task) -> None:
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

    def ask(self, images: Sequence[tuple[Wanted, int | None]]) -> None:
        """Ask for images, each for a view at a place or for its digest.

        Raises:
            OSError: The process has ended.
        """
        self._send(Asked(*zip(*images, strict=True)))

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
