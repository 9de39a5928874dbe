"""Read images of any format as upright RGB, on a given background color.

Training, the gallery builder and the search client all read through this file, so
that one image has one embedding (see docs/images.md for what the exported graph
does with the bytes that other clients send).
"""

import errno
import io
import os
import stat
from os import PathLike
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image, ImageOps

import tfdml.images._formats  # noqa: F401, with it Pillow reads HEIC
from tfdml.images._pixels import PixelRangeError, to_rgb
from tfdml.messages import cut, shortened
from tfdml.pillow_limits import is_of_machine, own_limit

WHITE = (255, 255, 255)
"""The color that shines through transparent pixels."""

MAX_PIXELS = 100_000_000
"""Pixels above which an image is refused, unless more are allowed."""

# What stands before the metadata that tell an orientation: EXIF and XMP.
_MAY_BE_TURNED = (b"Exif\0", b"ns.adobe.com/xap")
# What a path says that leads to no file: the machine is well.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_FACTORS = (8, 4, 2)  # by which libjpeg reduces an image as it decodes it
_LONGEST = 250  # characters of a path in a message


class UnreadableImageError(ValueError):
    """The file or the bytes are not an image that can be read."""


class MissingImageError(UnreadableImageError, FileNotFoundError):
    """There is no such file, such as where a link leads nowhere."""


def read_image(
    source: str | PathLike[str] | bytes,
    *,
    background: tuple[int, int, int] = WHITE,
    max_pixels: int | None = MAX_PIXELS,
    least_side: int | None = None,
) -> np.ndarray:
    """Read one image as upright RGB.

    The EXIF orientation is applied, transparent pixels are composited on
    `background`, the first frame of an animation is taken, and every color mode is
    converted to RGB. More than 8 bits are scaled by the depth that the file states,
    floats from 0 to 1; where the range of the pixels is not known, the image is
    refused.

    Args:
        source: Path of a file, or the encoded bytes themselves.
        background: RGB color under transparent pixels, each 0 to 255.
        max_pixels: Width times height above which the image is refused before it
            is decoded; None for no limit.
        least_side: Decode a JPEG at 1/8, 1/4 or 1/2 of its size, the first at which
            both sides have at least so many pixels: two to three times as fast for a
            large photograph. A pixel is then the average of a square of the whole
            image. Sizes are rounded up, so that a view cut from the result may lie half
            a pixel elsewhere. Other formats, and JPEGs that may lie on their side, are
            read whole. Default: all are.

    Returns:
        uint8 array `[height, width, 3]`.

    Raises:
        UnreadableImageError: The image is broken, of an unknown format or larger
            than `max_pixels`, or the source is not a regular file. The message names
            the file and the reason.
        FileNotFoundError: There is no such file. It is an `UnreadableImageError`, too.
        OSError: The file may not be read, or the machine cannot read it now: no
            permission, a broken disk, no file descriptors left.
        MemoryError: There is not enough memory.
    """
    name = "image bytes" if isinstance(source, bytes) else cut(source, _LONGEST)
    data = source if isinstance(source, bytes) else _content(Path(source))
    try:
        pixels = _plain_jpeg(data, max_pixels, least_side)
        if pixels is not None:
            return pixels
        with own_limit(max_pixels), Image.open(io.BytesIO(data)) as image:
            _check_size(image.size, max_pixels)
            image.load()
            _check_size(image.size, max_pixels)  # an icon may hold another
            # In place, because an image that lies upright would be copied.
            ImageOps.exif_transpose(image, in_place=True)
            return to_rgb(image, background)
    except Image.UnidentifiedImageError:
        reason = "no image format or no kind of pixels that Pillow knows"
    except (_TooLargeError, Image.DecompressionBombError) as error:
        # Pillow's own text speaks of an attack, here it is the user's image.
        size = str(error).removeprefix("Image size (").partition(")")[0]
        raise UnreadableImageError(
            f"{name}: an image may have at most {max_pixels} pixels, as `max_pixels` "
            f"says. Received: {size}."
        ) from None
    except PixelRangeError as error:
        reason = str(error)
    except Exception as error:  # Pillow's decoders raise whatever they meet
        if is_of_machine(error):
            raise _with_name(error, name) from error
        reason = f"{type(error).__name__}: {shortened(error)}"
    raise UnreadableImageError(f"{name}: cannot be read as an image ({reason}).")


class _TooLargeError(Exception):
    """An image has too many pixels; the message says how many."""


def _check_size(size: tuple[int, int], max_pixels: int | None) -> None:
    width, height = size
    if max_pixels is not None and width * height > max_pixels:
        raise _TooLargeError(f"{width} x {height}")


def _content(file: Path) -> bytes:
    """Read a file; a pipe or a device would keep its reader for ever."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise UnreadableImageError(f"{cut(file, _LONGEST)}: is not a regular file.")
        return file.read_bytes()
    except OSError as error:
        if error.errno in _MISSING:
            where = " where this link leads" if os.path.islink(file) else ""
            is_plain = error.errno == errno.ENOENT
            why = "" if is_plain else f" ({os.strerror(error.errno or 0)})"
            raise MissingImageError(
                f"{cut(file, _LONGEST)}: there is no such file{where}{why}."
            ) from None
        raise _with_name(error, str(file)) from error
    except ValueError as error:
        if isinstance(error, UnreadableImageError):
            raise
        # No name of a file holds a NUL.
        raise MissingImageError(
            f"{cut(file, _LONGEST)}: there is no such file."
        ) from error


def _with_name(error: Exception, name: str) -> Exception:
    """Return an error of the machine that says which file was being read."""
    if isinstance(error, MemoryError):
        return MemoryError(f"{name}: there is not enough memory to read it.")
    if isinstance(error, OSError) and error.filename is None:
        return OSError(error.errno, error.strerror, name)
    return error


def _plain_jpeg(
    data: bytes, max_pixels: int | None, least_side: int | None
) -> np.ndarray | None:
    """Decode a JPEG by libjpeg-turbo alone: Pillow's pixels in two thirds of its time.

    None where Pillow must say what becomes of it: another format or color space, too
    many pixels, an image that may lie on its side, data that libjpeg warns of.
    """
    if data[:3] != b"\xff\xd8\xff" or any(word in data for word in _MAY_BE_TURNED):
        return None
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
        _check_size((width, height), max_pixels)
        if colors not in ("YCbCr", "Gray"):
            return None
        if least_side is None:
            return simplejpeg.decode_jpeg(data, "RGB")
        factor = next((f for f in _FACTORS if min(height, width) >= f * least_side), 1)
        # Rounded up, so that libjpeg takes this factor and no other.
        return simplejpeg.decode_jpeg(
            data, "RGB", min_height=-(-height // factor), min_width=-(-width // factor)
        )
    except ValueError:
        return None


def encode_png(image: np.ndarray) -> bytes:
    """Encode a uint8 image `[height, width, 3]` as PNG, without loss."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
