"""Read images in a process of its own, as `_workers` asks for them.

The process gets a `Task` and then `Asked` after `Asked` on its standard input, pickled,
and writes an `Answer` to each to its standard output. Views go into memory that is
shared with the process that asked. It ends when its input does: however that process
ends, none of these stays behind.
"""

import io
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tfdml.images._forms import Forms, Wanted, content_of
from tfdml.images._shared_views import open_memory
from tfdml.images._view import RandomView

_NICENESS = 5
_LARGE_BLOCK = 31 * 2**20  # glibc follows up to 32 MiB


@dataclass(frozen=True)
class Task:
    """What a worker process has to do all its life.

    Args:
        random_view: How views are cut.
        max_pixels: As for `Forms`.
        scaled_decoding: As for `Forms`.
        cache_bytes: As for `Forms`.
        memory: The shared memory: a file descriptor, or its name on Windows.
        memory_bytes: Its size.
    """

    random_view: RandomView
    max_pixels: int | None
    scaled_decoding: bool
    cache_bytes: int
    memory: int | str
    memory_bytes: int


@dataclass(frozen=True)
class Asked:
    """Images that are wanted together.

    Args:
        images: Which.
        places: Where the view of each goes in the shared memory; None asks for a
            digest instead.
    """

    images: Sequence[Wanted]
    places: Sequence[int | None]


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


def _give_way() -> None:
    """Leave the cores to the process that asks when both want them.

    It calls the steps of the training; some batches have been read ahead.
    """
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)


def main() -> None:
    """Answer until nothing more is asked."""
    _give_way()
    # Ctrl-C reaches all processes of a terminal: the one that asks decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    keep_freed_memory()
    task: Task = received(requests)
    memory = np.frombuffer(open_memory(task.memory, task.memory_bytes), np.uint8)
    forms = Forms(
        task.random_view, task.max_pixels, task.cache_bytes, task.scaled_decoding
    )
    _answer(forms, memory, requests, answers)


def received(stream: IO[bytes]) -> Any:
    """Return the next object that the process at the other end has sent.

    Raises:
        EOFError, OSError, pickle.UnpicklingError: That process has ended.
    """
    return pickle.load(stream)  # noqa: S301, both ends are ours


def _answer(
    forms: Forms, memory: np.ndarray, requests: IO[bytes], answers: IO[bytes]
) -> None:
    while True:
        try:
            asked: Asked = received(requests)
        except EOFError:
            return
        results = [
            _result(forms, memory, wanted, place)
            for wanted, place in zip(asked.images, asked.places, strict=True)
        ]
        kept = [w.position for w in asked.images if forms.keeps(w.position)]
        try:
            pickle.dump(Answer(results, kept), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:  # nobody waits for it any more
            return


def _result(
    forms: Forms, memory: np.ndarray, wanted: Wanted, place: int | None
) -> Exception | str | None:
    try:
        if place is None:
            return content_of(forms.form(wanted))
        view = forms.view(wanted)
        memory[place : place + view.size].reshape(view.shape)[:] = view
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
