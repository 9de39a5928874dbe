"""Check the images that strangers send, and cut regions out of images."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tfdml.images import UnreadableImageError
from tfdml.pillow_limits import is_of_machine, own_limit

from ...endpoint.options import ServerOptions

UPLOAD_FORMATS = {
    name: suffix
    for name, suffix in {
        "AVIF": "avif",
        "BMP": "bmp",
        "GIF": "gif",
        "JPEG": "jpg",
        "JPEG2000": "jp2",
        "PNG": "png",
        "TIFF": "tif",
        "WEBP": "webp",
    }.items()
    if name in Image.OPEN  # AVIF is not in every build of Pillow
}
"""Formats of Pillow to accept from strangers, with the suffix of a file of each.

Pillow opens more, some by starting other programs.
"""

_ROUNDING = 1e-6
# Of a pixel, while an image is read; see `memory_of`.
_BYTES = 11
_BYTES_OF_FORMAT = {"WEBP": 18, "AVIF": 15}
_BYTES_OF_NUMBERS = 23  # of more than 8 bits, or floats


@dataclass(frozen=True)
class Crop:
    """A region of an image, in fractions of its upright width and height.

    Args:
        x: Left edge, from 0.
        y: Upper edge, from 0.
        width: Above 0; `x + width` is at most 1.
        height: Above 0; `y + height` is at most 1.

    Raises:
        ValueError: A number is out of its range.
    """

    x: float
    y: float
    width: float
    height: float

    def __post_init__(self) -> None:
        """Check the numbers; a NaN is in no range."""
        for start, size in ((self.x, self.width), (self.y, self.height)):
            if not (start >= 0 and size > 0 and start + size <= 1 + _ROUNDING):
                raise ValueError(
                    "`crop` must be x, y, width and height in fractions of the "
                    "image, inside it. Received: "
                    f"{self.x:g}, {self.y:g}, {self.width:g}, {self.height:g}."
                )

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Self:
        """Create a crop from four numbers.

        Raises:
            ValueError: There are not four, or one is out of its range.
        """
        if len(numbers) != 4:
            raise ValueError(
                "`crop` must be four numbers: x, y, width and height. "
                f"Received: {len(numbers)} numbers."
            )
        return cls(*map(float, numbers))

    def cut(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return each pixel of an upright image `[H, W, 3]` that the region touches.

        The result has at least one pixel; it is a view.
        """
        rows, columns = pixels.shape[:2]
        left, right = _edges(self.x, self.width, columns)
        top, bottom = _edges(self.y, self.height, rows)
        return pixels[top:bottom, left:right]


def _edges(start: float, size: float, pixels: int) -> tuple[int, int]:
    """Return the first pixel and the one behind the last."""
    first = min(math.floor(start * pixels + _ROUNDING), pixels - 1)
    last = min(math.ceil((start + size) * pixels - _ROUNDING), pixels)
    return first, max(last, first + 1)


def memory_of(image: bytes | Path) -> int:
    """Return how many bytes an image takes at most while it is read, by its header.

    The numbers were measured with Pillow 12: its own pixels, those of the decoder, and
    the copies until the image has the size that the model sees.

    Args:
        image: Path of a file, or the encoded content.

    Returns:
        The bytes; 0 for what is no image, which no decoder gets to see.
    """
    if not isinstance(image, bytes) and not image.is_file():
        return 0  # a pipe would keep its reader for ever
    try:
        with (
            own_limit(None),
            Image.open(
                io.BytesIO(image) if isinstance(image, bytes) else image
            ) as opened,
        ):
            width, height = opened.size
            kind, mode = opened.format, opened.mode
    except Exception as error:  # whoever reads it says what is wrong
        if is_of_machine(error):
            raise
        return 0
    of_pixel = _BYTES_OF_FORMAT.get(kind or "", _BYTES)
    if mode == "F" or mode.startswith("I"):
        of_pixel = max(of_pixel, _BYTES_OF_NUMBERS)
    return width * height * of_pixel


def check_upload(content: bytes, max_pixels: int = ServerOptions.max_pixels) -> str:
    """Check, before decoding, that a stranger's file is an image of a usual format.

    Args:
        content: The encoded image.
        max_pixels: Most pixels, width times height.

    Returns:
        The usual suffix of such a file, without the dot.

    Raises:
        UnreadableImageError: It is not such an image, or has too many pixels.
        OSError, MemoryError: The machine cannot look into it now.
    """
    try:
        # Pillow warns of many pixels; the rule on the size is the one below.
        with (
            own_limit(max_pixels),
            Image.open(io.BytesIO(content), formats=list(UPLOAD_FORMATS)) as image,
        ):
            width, height = image.size
            kind = image.format or ""
            too_large = width * height > max_pixels
    except Image.DecompressionBombError:
        too_large, kind = True, ""
    except Exception as error:  # Pillow's decoders raise whatever they meet
        if is_of_machine(error):
            raise
        raise UnreadableImageError(
            "This is not an image that can be searched with. JPEG, PNG, WebP, GIF, "
            "AVIF, TIFF and BMP files can."
        ) from error
    if too_large:
        raise UnreadableImageError(
            f"This image has too many pixels. At most {max_pixels // 1_000_000} "
            "million are allowed. Make it smaller and try again."
        )
    return UPLOAD_FORMATS.get(kind, "jpg")  # MPO, several JPEGs in one file
