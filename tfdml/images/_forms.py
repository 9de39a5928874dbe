"""Make one image ready for a batch: read it, keep it, and cut its view."""

import hashlib
import threading
from dataclasses import dataclass

import numpy as np

from tfdml.images._read import UnreadableImageError, read_image
from tfdml.images._view import RandomView
from tfdml.messages import cut

_SIDE = 512  # rows and columns of a large image that its digest looks at

Box = tuple[int, int, int, int]
"""x and y of the upper left corner, width and height, in pixels."""


@dataclass(frozen=True)
class Wanted:
    """One image that is wanted.

    Args:
        position: Its number in the data set.
        source: Its file, or uint8 `[height, width, 3]`.
        name: What messages call it.
        box: The part of it to use; None for all of it.
        draw: What the random numbers of its view depend on: seed, number of the batch,
            place in the batch. None for the central view.
    """

    position: int
    source: str | np.ndarray
    name: str
    box: Box | None = None
    draw: tuple[int, int, int] | None = None


class Forms:
    """Read images, and keep them while they fit.

    What is kept of an image is its form: the least from which each of its views can be
    cut. May be used from several threads.

    Args:
        random_view: How views are cut.
        max_pixels: Width times height above which a file cannot be read; None for no
            limit.
        cache_bytes: Most bytes of forms to keep; 0 keeps none.
        scaled_decoding: Whether a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where
            that is enough for every view.
    """

    def __init__(
        self,
        random_view: RandomView,
        max_pixels: int | None,
        cache_bytes: int,
        scaled_decoding: bool = False,
    ) -> None:
        self.random_view = random_view
        self.max_pixels = max_pixels
        self.cache_bytes = cache_bytes
        self._least = random_view.least_side if scaled_decoding else None
        self.kept_bytes = 0
        self._kept: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def keeps(self, position: int) -> bool:
        """Return whether an image is kept."""
        return position in self._kept

    def view(self, wanted: Wanted) -> np.ndarray:
        """Return the view of an image, uint8 `[image_size, image_size, 3]`.

        Raises:
            UnreadableImageError: The file is broken or gone.
            ValueError: The box reaches beyond the image.
        """
        form = self.form(wanted)
        if self.random_view.crop == "none":
            return form
        if wanted.draw is None:
            return self.random_view.view.central(form)
        return self.random_view(form, np.random.default_rng(wanted.draw))

    def form(self, wanted: Wanted) -> np.ndarray:
        """Return the form of an image, read or kept."""
        form = self._kept.get(wanted.position)
        if form is not None:
            return form
        image = self._read(wanted)
        crop = self.random_view.crop
        try:
            if crop == "none":
                form = self.random_view.view.central(image)
            elif crop == "position":
                form = self.random_view.view.reduced(image)
            else:
                form = image
        except UnreadableImageError as error:  # which knows no name
            raise UnreadableImageError(f"{cut(wanted.name)}: {error}") from None
        self._keep(wanted, form)
        return form

    def _read(self, wanted: Wanted) -> np.ndarray:
        source = wanted.source
        if isinstance(source, np.ndarray):
            image = source
        else:
            # A box is in pixels of the whole image.
            least = self._least if wanted.box is None else None
            image = read_image(source, max_pixels=self.max_pixels, least_side=least)
        if wanted.box is None:
            return image
        x, y, width, height = wanted.box
        if min(x, y) < 0 or x + width > image.shape[1] or y + height > image.shape[0]:
            raise ValueError(
                f"{cut(wanted.name)}: its box must lie inside the image. Received: "
                f"x={x}, y={y}, width={width}, height={height} in {image.shape[1]} x "
                f"{image.shape[0]} pixels."
            )
        return image[y : y + height, x : x + width]

    def _keep(self, wanted: Wanted, form: np.ndarray) -> None:
        source = wanted.source
        if isinstance(source, np.ndarray) and np.may_share_memory(form, source):
            return  # in memory as it is
        with self._lock:
            full = self.kept_bytes + form.nbytes > self.cache_bytes
            if full or wanted.position in self._kept:
                return
            # A part of an image would keep the whole of it alive.
            whole = not isinstance(form.base, np.ndarray)
            self._kept[wanted.position] = form if whole else form.copy()
            self.kept_bytes += form.nbytes


def content_of(form: np.ndarray) -> str:
    """Return a digest of an image, the same for the same pixels alone.

    Of a large image evenly spread rows and columns are taken, which another photograph
    does not share.

    Args:
        form: uint8 `[height, width, 3]`.

    Returns:
        16 hexadecimal digits.
    """
    height, width = form.shape[:2]
    some = form[:: max(1, height // _SIDE), :: max(1, width // _SIDE)]
    digest = hashlib.blake2b(f"{form.shape}".encode(), digest_size=8)
    digest.update(some.tobytes())
    return digest.hexdigest()
