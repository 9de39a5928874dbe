"""Read images in a process of its own, as `_workers` asks for them.

The process gets pickled objects on its standard input, and answers on its standard
output: first a `Task`, then lists of `Wanted`. Views go into memory that is shared with
the process that asked. It ends when its input does: however that process ends, none of
these stays behind.
"""

import io
import mmap
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tfdml.images._forms import Forms, Wanted, content_of
from tfdml.images._view import RandomView

_LARGE_BLOCK = 31 * 2**20  # glibc follows up to 32 MiB


@dataclass(frozen=True)
class Task:
    """What a worker process has to do all its life.

    Args:
        random_view: How views are cut.
        max_pixels: As for `Forms`.
        cache_bytes: As for `Forms`.
        memory: The shared memory: a file descriptor, or its name on Windows.
        memory_bytes: Its size.
        begin: Where the part of this process begins in it.
    """

    random_view: RandomView
    max_pixels: int | None
    cache_bytes: int
    memory: int | str
    memory_bytes: int
    begin: int


@dataclass(frozen=True)
class Asked:
    """Images that are wanted together.

    Args:
        images: Which.
        first: Where views go: the first's place in the part of the process, in views.
            None asks for digests instead.
    """

    images: Sequence[Wanted]
    first: int | None


@dataclass(frozen=True)
class Answer:
    """What became of the images that were asked for.

    Args:
        results: For each image the error that it met; else its digest, or None.
        kept: The positions of those that are kept here.
    """

    results: Sequence[Exception | str | None]
    kept: Sequence[int]


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next image.

    As it grows used to blocks of this size, it does. Otherwise each image gets fresh
    pages, which doubles the time.
    """
    bytes(_LARGE_BLOCK)


def main() -> None:
    """Answer until nothing more is asked."""
    # Ctrl-C reaches all processes of a terminal: the one that asks decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    keep_freed_memory()
    task: Task = received(requests)
    size = task.random_view.view.image_size
    memory = np.frombuffer(open_memory(task.memory, task.memory_bytes), np.uint8)
    views = memory[task.begin :]
    views = views[: len(views) // (size * size * 3) * size * size * 3]
    forms = Forms(task.random_view, task.max_pixels, task.cache_bytes)
    _answer(forms, views.reshape(-1, size, size, 3), requests, answers)


def received(stream: IO[bytes]) -> Any:
    """Return the next object that the process at the other end has sent.

    Raises:
        EOFError, OSError, pickle.UnpicklingError: That process has ended.
    """
    return pickle.load(stream)  # noqa: S301, both ends are ours


def open_memory(name: int | str, size: int) -> mmap.mmap:
    """Open shared memory by the file descriptor, or on Windows the name, it has."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size, tagname=name)
    return mmap.mmap(int(name), size)


def _answer(
    forms: Forms, views: np.ndarray, requests: IO[bytes], answers: IO[bytes]
) -> None:
    while True:
        try:
            asked: Asked = received(requests)
        except EOFError:
            return
        results = [
            _result(forms, wanted, asked.first, place, views)
            for place, wanted in enumerate(asked.images)
        ]
        kept = [w.position for w in asked.images if forms.keeps(w.position)]
        try:
            pickle.dump(Answer(results, kept), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:  # nobody waits for it any more
            return


def _result(
    forms: Forms, wanted: Wanted, first: int | None, place: int, views: np.ndarray
) -> Exception | str | None:
    try:
        if first is None:
            return content_of(forms.form(wanted))
        views[first + place] = forms.view(wanted)
    except Exception as error:
        return _picklable(error)
    return None


def _picklable(error: Exception) -> Exception:
    """Return an error that another process can read, with the same message."""
    try:
        received(io.BytesIO(pickle.dumps(error)))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main()
