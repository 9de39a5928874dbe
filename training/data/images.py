"""Read and cache the images of a data set, as the network sees them."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tqdm import tqdm

from tfdml.images import RandomView, UnreadableImageError, View
from tfdml.messages import cut
from training.data.contents import content_of, shared_images
from training.data.data_set import DataSet
from training.environment import cpu_cores
from training.recipe.recipe import Recipe

_LARGE_BLOCK = 31 * 2**20  # glibc follows up to 32 MiB


class Images:
    """The images of a data set in one view, read when they are asked for.

    Images that were read are kept while they fit `cache_bytes`: whole squares with
    `crop` = "none", else what a random crop can be cut from. What is returned does not
    depend on what is kept. May be used from several threads.

    Args:
        data: Which images.
        view: What the network sees of them.
        crop: How `random` cuts: "none", "position" or "resized", see
            `tfdml.images.RandomView`.
        min_scale: Smallest share of the area with `crop` = "resized", above 0 and at
            most 1.
        seed: Seed of the random crops, at least 0.
        cache_bytes: Most bytes of images to keep; 0 keeps none.
        max_pixels: Width times height above which a file cannot be read; None for no
            limit.
        threads: Threads that read; by default one a CPU core.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        data: DataSet,
        view: View,
        *,
        crop: str = "none",
        min_scale: float = 0.16,
        seed: int = 0,
        cache_bytes: int = 2**30,
        max_pixels: int | None = None,
        threads: int | None = None,
    ) -> None:
        least = {"seed": (seed, 0), "cache_bytes": (cache_bytes, 0)}
        least["threads"] = (1 if threads is None else threads, 1)
        for name, (value, lowest) in least.items():
            if value < lowest:
                raise ValueError(
                    f"`{name}` must be at least {lowest}. Received: {name}={value}."
                )
        self.data = data
        self.view = view
        self._crop = crop
        self._random_view = RandomView(view, crop, min_scale)
        self._seed = seed
        self._cache_bytes = cache_bytes
        self._max_pixels = max_pixels
        self._threads = threads or cpu_cores()
        # As glibc grows used to blocks of this size, it keeps freed memory for the next
        # image. Otherwise each image gets fresh pages, which doubles the time.
        bytes(_LARGE_BLOCK)
        self._pool = ThreadPoolExecutor(self._threads, "images")
        self._lock = threading.Lock()
        self._kept: dict[int, np.ndarray] = {}
        self._kept_bytes = 0
        self._contents: dict[int, str] = {}

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.data)

    @property
    def contents(self) -> dict[int, str]:
        """Digests of the images that `check` could read, by position."""
        return dict(sorted(self._contents.items()))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the images that are kept."""
        return self._kept_bytes

    def central(self, positions: Iterable[int] | np.ndarray) -> np.ndarray:
        """Return images as at test time.

        Args:
            positions: Which, as positions in the data set.

        Returns:
            uint8 `[n, image_size, image_size, 3]`.

        Raises:
            UnreadableImageError: A file is broken.
            FileNotFoundError: A file is gone.
        """

        def view(place: int, form: np.ndarray) -> np.ndarray:
            return form if self._crop == "none" else self.view.central(form)

        return self._gathered(positions, view)

    def random(self, positions: Iterable[int] | np.ndarray, step: int) -> np.ndarray:
        """Return images cut at random, as `crop` says.

        The random numbers depend on the seed, the step and the place in `positions`
        alone: the same call gives the same images in every process.

        Args:
            positions: Which, as positions in the data set.
            step: Number of the batch, at least 0.

        Returns:
            uint8 `[n, image_size, image_size, 3]`.

        Raises:
            UnreadableImageError: A file is broken.
            FileNotFoundError: A file is gone.
        """
        if self._crop == "none":
            return self.central(positions)

        def view(place: int, form: np.ndarray) -> np.ndarray:
            generator = np.random.default_rng([self._seed, step, place])
            return self._random_view(form, generator)

        return self._gathered(positions, view)

    def check(
        self, *, skip_unreadable: bool = False, description: str = "read"
    ) -> list[tuple[int, str]]:
        """Read every image once, in a terminal with a bar, and keep what fits.

        Args:
            skip_unreadable: Go on where a file is broken.
            description: Stands before the progress bar.

        Returns:
            Position and reason for each broken file; `select` the others.

        Raises:
            UnreadableImageError: A file is broken or gone and `skip_unreadable` is
                False.
            OSError, MemoryError: The machine cannot read a file.
        """

        def reason(position: int) -> str | None:
            try:
                self._contents[position] = content_of(self._form(position))
            except UnreadableImageError as error:
                if skip_unreadable:
                    return str(error)
                raise
            return None

        tasks = [self._pool.submit(reason, position) for position in range(len(self))]
        try:
            with tqdm(tasks, desc=description, unit="image", disable=None) as progress:
                reasons = [task.result() for task in progress]
        finally:
            for task in tasks:  # after an error, those that have not begun
                task.cancel()
        return [(i, text) for i, text in enumerate(reasons) if text is not None]

    def _gathered(
        self,
        positions: Iterable[int] | np.ndarray,
        view: Callable[[int, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        chosen = np.asarray(positions, dtype="int64").reshape(-1).tolist()
        size = self.view.image_size
        views = np.empty((len(chosen), size, size, 3), "uint8")
        left = iter(range(len(chosen)))
        turn = threading.Lock()

        def take() -> int | None:
            with turn:
                return next(left, None)

        def fill() -> None:
            try:
                while (place := take()) is not None:
                    views[place] = view(place, self._form(chosen[place]))
            except BaseException:
                while take() is not None:  # the other threads need not go on
                    pass
                raise

        # Copies of what is kept are made faster than threads are woken.
        is_copied = self._crop != "resized" and self._kept.keys() >= set(chosen)
        if is_copied or self._threads == 1:
            fill()
            return views
        # Not a task for each image: each costs the calling thread some time, which
        # the readers then wait for.
        for task in [self._pool.submit(fill) for _ in range(self._threads)]:
            task.result()
        return views

    def _form(self, position: int) -> np.ndarray:
        """Return what the views of an image are made from: read, or kept."""
        form = self._kept.get(position)
        if form is not None:
            return form
        image = self.data.read(position, max_pixels=self._max_pixels)
        try:
            if self._crop == "none":
                form = self.view.central(image)
            elif self._crop == "position":
                form = self.view.reduced(image)
            else:
                form = image
        except UnreadableImageError as error:  # which knows no name
            raise UnreadableImageError(
                f"{cut(self.data.images[position])}: {error}"
            ) from None
        with self._lock:
            self._keep(position, form)
        return form

    def _keep(self, position: int, form: np.ndarray) -> None:
        images = self.data.images
        if isinstance(images, np.ndarray) and np.may_share_memory(form, images):
            return  # in memory as it is
        full = self._kept_bytes + form.nbytes > self._cache_bytes
        if full or position in self._kept:
            return
        # A part of an image would keep the whole of it alive.
        self._kept[position] = (
            form.copy() if isinstance(form.base, np.ndarray) else form
        )
        self._kept_bytes += form.nbytes


def open_images(recipe: Recipe, data: DataSet) -> Images:
    """Open the images of a data set as a recipe shows them; none is read yet."""
    about = recipe.images
    return Images(
        data,
        recipe.view,
        crop=about.crop,
        min_scale=about.min_scale,
        seed=recipe.fit.seed,
        cache_bytes=about.cache_megabytes * 2**20,
        max_pixels=about.max_pixels,
    )


def find_readable(
    images: Images, *, skip_unreadable: bool
) -> tuple[np.ndarray, list[str]]:
    """Read every image once; print what is broken, and what is in several classes.

    Args:
        images: The images.
        skip_unreadable: Whether broken files are skipped.

    Returns:
        The positions of the others, and a message for each broken file.

    Raises:
        UnreadableImageError: A file is broken or gone and `skip_unreadable` is False.
        OSError, MemoryError: The machine cannot read a file.
    """
    failures = images.check(skip_unreadable=skip_unreadable)
    skipped = [message for _, message in failures]
    if skipped:
        print(f"Skipped {len(skipped)} unreadable files:", *skipped, sep="\n  ")
    if shared := shared_images(images.data, images.contents):
        print(shared)
    broken = [position for position, _ in failures]
    return np.delete(np.arange(len(images)), broken), skipped
