"""Read by the functions of `tfdml.images` in threads, or in processes.

The processes keep what they read: what would be the most without handing it over.
"""

import functools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import simplejpeg

from benchmarks.reading.measured import MIN_SCALE, Task
from tfdml.images import RandomView, View, read_image

_AHEAD = 2  # batches


def batches_of(task: Task, kind: str) -> Iterator[np.ndarray | list[int]]:
    """Yield crops from "threads", or something as long from "decode" or "processes".

    "decode" is libjpeg-turbo alone in threads, and "processes" gives only how many
    images were cropped.
    """
    if kind == "processes":
        yield from _in_processes(task)
        return
    view = RandomView(View(task.image_size), "resized", MIN_SCALE)
    with ThreadPoolExecutor(task.cores) as pool:
        yield from _in_threads(task, pool, kind, view)


def crop(view: RandomView, file: str | Path, step: int, place: int) -> np.ndarray:
    """Return the crop of a file, the same as those of `tfdml.images.ImageReader`."""
    _keep_freed_memory()
    return view(read_image(file), np.random.default_rng([0, step, place]))


@functools.cache
def _keep_freed_memory() -> None:
    """Let glibc keep what it frees for the next image, as `ImageReader` does."""
    bytes(31 * 2**20)


def _in_threads(
    task: Task, pool: Executor, kind: str, view: RandomView
) -> Iterator[np.ndarray | list[int]]:
    for step, positions in task.steps():
        files = [task.files[position] for position in positions]
        if kind == "decode":
            yield list(pool.map(_decoded_pixels, files))
            continue
        crops = np.empty((len(files), task.image_size, task.image_size, 3), "uint8")

        def fill(place: int, files=files, crops=crops, step=step) -> None:  # type: ignore[no-untyped-def]
            crops[place] = crop(view, files[place], step, place)

        list(pool.map(fill, range(len(files))))
        yield crops


def _decoded_pixels(file: Path) -> int:
    return simplejpeg.decode_jpeg(file.read_bytes()).size


def _in_processes(task: Task) -> Iterator[list[int]]:
    view = RandomView(View(task.image_size), "resized", MIN_SCALE)
    with ProcessPoolExecutor(task.cores, get_context("spawn")) as pool:
        ahead: deque = deque()
        for step, positions in task.steps():
            files = [task.files[position] for position in positions]
            ahead.append(pool.submit(partial(_cropped, view, files, step)))
            if len(ahead) >= _AHEAD * task.cores:
                yield ahead.popleft().result()


def _cropped(view: RandomView, files: list[Path], step: int) -> list[int]:
    return [crop(view, file, step, i).size for i, file in enumerate(files)]
