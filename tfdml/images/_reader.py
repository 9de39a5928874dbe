"""Read the images of a data set, many at once."""

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike

import numpy as np

from tfdml._core.arguments import whole
from tfdml._core.parallel import cpu_cores
from tfdml.images._forms import Forms, Wanted, content_of
from tfdml.images._read import MAX_PIXELS, UnreadableImageError
from tfdml.images._view import RandomView, View
from tfdml.images._worker import keep_freed_memory
from tfdml.images._workers import Workers
from tfdml.progress import Progress

_FEW_CORES = 3  # on so many, threads hardly wait for Python's lock
_FEW_FILES = 256  # so many are read while processes start
_CHECKED_AT_ONCE = 32


class ImageReader:
    """Read the images of a data set as a network sees them, on all cores.

    Images are kept in memory after they are read, up to `cache_bytes`: complete
    squares with `crop` = "none", otherwise what a random crop can be cut from. What is
    returned depends neither on what is kept nor on what reads. Several threads may use
    a reader.

    With more than 3 cores and more than 256 files, processes read the files, one per
    core of about 60 MB each, because they do not share Python's lock; otherwise threads
    do. The processes start at the first call, end with the reader or with this process,
    for whatever reason, and import no script, so none needs a `__main__` guard.

    Args:
        images: Paths of files, or a uint8 array `[N, height, width, 3]`.
        view: What the network sees of them.
        crop: How `random` cuts: "none", "position" or "resized", see `RandomView`.
        min_scale: Smallest share of the area with `crop` = "resized", above 0 and at
            most 1.
        seed: Seed of the random crops, at least 0.
        boxes: The part of each image to use, integers `[N, 4]`: x and y of the upper
            left corner in the upright image, width, height. A width of 0 means the
            whole image. Default: all are used whole.
        cache_bytes: Maximum bytes of images to keep in memory; 0 keeps none.
        max_pixels: Width times height above which a file cannot be read; None for no
            limit.
        scaled_decoding: Whether to decode a JPEG at 1/2, 1/4 or 1/8 of its size where
            that is enough for every view: faster for large photographs, with slightly
            different pixels; see `read_image`. Images with a box are read whole.
        workers: How many processes read; with 0, threads of this process do. Default:
            as above.

    Raises:
        ValueError: An argument is out of range.
        TypeError: A number is not a whole number.

    Example:
        >>> images = np.zeros((3, 30, 40, 3), "uint8")
        >>> reader = ImageReader(images, View(24, resize=28), crop="position")
        >>> reader.random([2, 0], step=5).shape
        (2, 24, 24, 3)
    """

    def __init__(
        self,
        images: Sequence[str | PathLike[str]] | np.ndarray,
        view: View,
        *,
        crop: str = "none",
        min_scale: float = 0.16,
        seed: int = 0,
        boxes: np.ndarray | None = None,
        cache_bytes: int = 2**30,
        max_pixels: int | None = MAX_PIXELS,
        scaled_decoding: bool = False,
        workers: int | None = None,
    ) -> None:
        self.view = view
        self._images = images
        self._boxes = boxes
        self._seed = whole("seed", seed, 0)
        cache_bytes = whole("cache_bytes", cache_bytes, 0)
        random_view = RandomView(view, crop, min_scale)
        self._forms = Forms(random_view, max_pixels, cache_bytes, scaled_decoding)
        self._contents: dict[int, str] = {}
        self._cores = cpu_cores()
        if workers is None:
            is_many = len(images) > _FEW_FILES and self._cores > _FEW_CORES
            workers = self._cores if is_many else 0
        count = whole("workers", workers, 0)
        if isinstance(images, np.ndarray):
            count = 0  # they would have to be sent
        self._workers: Workers | None = None
        if count:
            self._workers = Workers(
                count,
                random_view,
                max_pixels,
                cache_bytes,
                scaled_decoding=scaled_decoding,
            )
            self._end = weakref.finalize(self, self._workers.close)
        keep_freed_memory()
        self._pool = ThreadPoolExecutor(self._cores, "images")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._images)

    @property
    def contents(self) -> dict[int, str]:
        """Digests of the images that `check` could read, by position."""
        return dict(sorted(self._contents.items()))

    def close(self) -> None:
        """End the processes that read. The reader cannot be used any more."""
        if self._workers is not None:
            self._end()
        self._pool.shutdown()

    def central(
        self, positions: Iterable[int] | np.ndarray | None = None
    ) -> np.ndarray:
        """Return images as at test time.

        Args:
            positions: Which, as positions in the data set. Default: all.

        Returns:
            uint8 `[n, image_size, image_size, 3]`.

        Raises:
            UnreadableImageError: A file is broken.
            FileNotFoundError: A file is gone.
            OSError, MemoryError: The machine cannot read a file.
            RuntimeError: A process that reads has ended.
        """
        wanted = range(len(self)) if positions is None else _listed(positions)
        return self._views([self._wanted(position) for position in wanted])

    def random(self, positions: Iterable[int] | np.ndarray, step: int) -> np.ndarray:
        """Return images cropped at random, as `crop` says.

        The random numbers depend on the seed, the step and the place in `positions`
        alone: the same call gives the same images in every process.

        Args:
            positions: Which, as positions in the data set.
            step: Number of the batch, at least 0.

        Returns:
            uint8 `[n, image_size, image_size, 3]`.

        Raises:
            UnreadableImageError, FileNotFoundError, OSError, MemoryError, RuntimeError:
                As `central`.
        """
        return self._views(
            [
                self._wanted(position, (self._seed, step, place))
                for place, position in enumerate(_listed(positions))
            ]
        )

    def check(
        self, *, skip_unreadable: bool = False, description: str = "read"
    ) -> list[tuple[int, str]]:
        """Read every image once, show the progress, and keep what fits.

        Args:
            skip_unreadable: Go on where a file is broken.
            description: What the progress is said to be of.

        Returns:
            Position and reason for each broken file.

        Raises:
            UnreadableImageError: A file is broken or gone and `skip_unreadable` is
                False.
            OSError, MemoryError: The machine cannot read a file.
            RuntimeError: A process that reads has ended.
        """
        failures = []
        blocks = range(0, len(self), _CHECKED_AT_ONCE)
        with Progress(description, len(self)) as progress:
            # Many blocks at once: no reader waits for the last one of a block.
            found = self._pool.map(self._digests, blocks)
            for start, results in zip(blocks, found, strict=True):
                for position, result in enumerate(results, start):
                    if isinstance(result, str):
                        self._contents[position] = result
                    elif skip_unreadable and isinstance(result, UnreadableImageError):
                        failures.append((position, str(result)))
                    else:
                        raise result
                progress.update(len(results))
        return failures

    def _wanted(
        self, position: int, draw: tuple[int, int, int] | None = None
    ) -> Wanted:
        source = self._images[position]
        name = f"image {position}"
        if not isinstance(source, np.ndarray):
            source = name = os.fspath(source)  # a path is slow to send
        box = None
        if self._boxes is not None and self._boxes[position, 2] != 0:
            x, y, width, height = (int(value) for value in self._boxes[position])
            box = (x, y, width, height)
        return Wanted(position, source, name, box, draw)

    def _digests(self, start: int) -> list[Exception | str]:
        stop = min(start + _CHECKED_AT_ONCE, len(self))
        images = [self._wanted(position) for position in range(start, stop)]
        if self._workers is not None:
            return self._workers.digests(images)

        def digest(wanted: Wanted) -> Exception | str:
            try:
                return content_of(self._forms.form(wanted))
            except Exception as error:
                return error

        return [digest(wanted) for wanted in images]

    def _views(self, images: Sequence[Wanted]) -> np.ndarray:
        if self._workers is not None:
            return self._workers.views(images)
        size = self.view.image_size
        views = np.empty((len(images), size, size, 3), "uint8")
        self._fill(images, views)
        return views

    def _fill(self, images: Sequence[Wanted], views: np.ndarray) -> None:
        """Read images by threads of this process."""
        left = iter(range(len(images)))
        turn = threading.Lock()

        def take() -> int | None:
            with turn:
                return next(left, None)

        def fill() -> None:
            try:
                while (place := take()) is not None:
                    views[place] = self._forms.view(images[place])
            except BaseException:
                while take() is not None:  # the other threads need not go on
                    pass
                raise

        # Copies of what is kept are made faster than threads are woken.
        is_cut = self._forms.random_view.crop != "resized"
        is_copied = is_cut and all(self._forms.keeps(w.position) for w in images)
        if is_copied or self._cores == 1:
            fill()
            return
        # Not a task for each image: each costs the calling thread some time, which
        # the readers then wait for.
        for task in [self._pool.submit(fill) for _ in range(self._cores)]:
            task.result()


def _listed(positions: Iterable[int] | np.ndarray) -> list[int]:
    numbers: list[int] = np.asarray(positions, dtype="int64").reshape(-1).tolist()
    return numbers
