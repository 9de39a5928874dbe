"""Measure one way to read images, with 1 core and with more.

Run by the interpreter of the way, which need not have Keras:
`python -m benchmarks.reading.measured WAY SETTINGS`.
"""

import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.image_files import class_batches, image_files
from benchmarks.rounds import tell_rounds

MIN_SCALE = 0.16
"""Smallest share of an image that a random crop shows."""

_BATCHES = 2000
"""Different batches; then they come again."""


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        folder: Of the images.
        cores: How many cores a way gets, one after the other.
        image_size: Side of the crops.
        classes_per_batch: Of a batch.
        images_per_class: Of a batch.
        rounds: Measurements.
        seconds: Of each, at least.
    """

    folder: str
    cores: tuple[int, ...]
    image_size: int = 224
    classes_per_batch: int = 32
    images_per_class: int = 4
    rounds: int = 3
    seconds: float = 1.0

    @classmethod
    def read(cls, text: str) -> "Settings":
        """Return what `written` wrote."""
        return cls(**json.loads(text))

    @property
    def written(self) -> str:
        """These settings as text."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Task:
    """What a way has to do.

    Args:
        files: The images.
        batches: Positions of the images of each batch, int64 `[batches, batch]`.
        classes_per_batch: How many classes are in each.
        image_size: Side of the crops.
        cores: How many may be used.
    """

    files: Sequence[Path]
    batches: np.ndarray
    classes_per_batch: int
    image_size: int
    cores: int

    def steps(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number and the positions of each batch, without end."""
        return enumerate(itertools.cycle(self.batches))


def main() -> None:
    way, settings = sys.argv[1], Settings.read(sys.argv[2])
    module, _, kind = way.partition(":")
    batches_of = importlib.import_module(f"benchmarks.reading.{module}").batches_of
    files = image_files(Path(settings.folder))
    batches = class_batches(
        files, settings.classes_per_batch, settings.images_per_class, _BATCHES
    )
    for cores in settings.cores:
        _use(cores)
        task = Task(
            files, batches, settings.classes_per_batch, settings.image_size, cores
        )
        with closing(batches_of(task, *([kind] if kind else []))) as stream:
            _measure(stream, cores, settings)


def _measure(stream: Iterator[Any], cores: int, settings: Settings) -> None:
    # What was read ahead, and what starts slowly, is not counted.
    _images(stream, 0.5 * settings.seconds, 2 * cores)
    tell_rounds(
        "reading",
        lambda: _images(stream, settings.seconds, cores),
        settings.rounds,
        cores=cores,
    )


def _images(stream: Iterator[Any], seconds: float, batches: int) -> int:
    """Take batches for so long, and so many at least; return how many images."""
    stop, taken, images = perf_counter() + seconds, 0, 0
    while taken < batches or perf_counter() < stop:
        images += len(next(stream))
        taken += 1
    return images


def _use(cores: int) -> None:
    """Let what starts from now on use so many cores."""
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, _ALL_CORES[:cores])


_ALL_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

if __name__ == "__main__":
    main()
