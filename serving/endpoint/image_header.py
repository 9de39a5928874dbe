"""Read the size of an encoded image from its header alone.

An image of 100 kB may unpack to gigabytes. The endpoint refuses it by the size that
its header declares, before a decoder takes the memory. The rules are those of the
decoders in TensorFlow 2.20, which read the same bytes.

Pillow does not follow them. Of 506 damaged and odd files that TensorFlow decoded (6,000
drawn by `tests/fuzz/damaged_images.py`, and those of this module's tests), Pillow 13
refused 28 and reported 4 as smaller than TensorFlow made them; this module none.
"""

import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ..web.status import StatusCode, StatusError

_UNMEASURED = (2**31 - 1, 2**31 - 1)

# Bytes that a model of `tfdml.export` takes for each pixel while it decodes an image in
# TensorFlow 2.20: 15.7 (RGB), 18.6 (BMP), 38.2 (with transparency), measured.
_OPAQUE, _BMP, _TRANSPARENT = 16, 20, 39
_FURTHER_FRAME = 3
_ENCODED = 4
"""Copies of the encoded image that TensorFlow makes meanwhile, whatever it is."""

# A marker follows a byte 0xFF; 0xFF itself only fills, and 0xFF00 is not a marker.
_JPEG_MARKER = re.compile(rb"(?<=\xff)[^\x00\xff]")
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_STANDALONE = frozenset([0x01, *range(0xD0, 0xD9)])
_JPEG_ENDS = frozenset([0xD9, 0xDA])


class _EndlessHeaderError(Exception):
    """The header has more parts than that of any image of its length."""


class _RefusedError(Exception):
    """The image is not to be decoded, for the reason in the text."""


def check_pixels(values: Any, most: int, input_name: str) -> tuple[int, np.ndarray]:
    """Refuse images that would unpack to too many pixels.

    Values that are not images are left to the model. Animated WebP is refused at any
    size: `tf.io.decode_image` of TensorFlow 2.20 writes beyond its buffer, which ends
    the process.

    Args:
        values: Array of bytes objects, of any shape.
        most: Most pixels of one image, over all its frames, at least 1.
        input_name: Name of the input, for the error.

    Returns:
        The pixels of all images together, over all their frames; and for each row, by
        the first dimension, the bytes that its values take while they are decoded.

    Raises:
        StatusError: INVALID_ARGUMENT; the first image that is too large or is an
            animated WebP.
        ValueError: `most` is out of range.
    """
    if most < 1:
        raise ValueError(f"`most` must be at least 1. Received: most={most}.")
    array = np.asarray(values, object)
    in_row = math.prod(array.shape[1:])
    total = 0
    costs = np.zeros(array.shape[0] if array.ndim else 1, np.int64)
    for index, image in enumerate(array.ravel().tolist()):
        try:
            pixels, cost = _count_pixels(image, most)
        except _RefusedError as error:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f'Input "{input_name}", row {index // in_row}: {error}',
            ) from error
        total += pixels
        costs[index // in_row] += cost + _ENCODED * len(image)
    return total, costs


def declared_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height that an image declares.

    Never smaller than what TensorFlow would make of it, and equal where TensorFlow
    decodes it; the time is linear in the bytes of the header.

    Args:
        data: Anything; JPEG, PNG, GIF, BMP and WebP are known.

    Returns:
        Width and height in pixels, each at least 1; of several frames of a GIF the
        largest width and the largest height. None if it is not such an image, or ends
        before its size. A header of more parts than any image has, made to be slow,
        counts as 2147483647 x 2147483647.
    """
    try:
        measured = _measure(data)
    except _EndlessHeaderError:
        return _UNMEASURED
    return measured and measured[:2]


def is_animated_webp(data: bytes) -> bool:
    """Return whether the header declares an animated WebP image."""
    is_extended = data[:4] == b"RIFF" and data[8:16] == b"WEBPVP8X"
    return is_extended and len(data) > 20 and bool(data[20] & 2)


def _count_pixels(image: bytes, most: int) -> tuple[int, int]:
    """Return the pixels of an image, and the bytes that it takes to decode them."""
    if is_animated_webp(image):
        raise _RefusedError("An animated WebP is not decoded; send this image as PNG.")
    try:
        measured = _measure(image, most)
    except _EndlessHeaderError as error:
        raise _RefusedError("the header of the image has too many parts.") from error
    if measured is None:
        return 0, 0
    width, height, frames, each = measured
    pixels = width * height * frames
    if pixels > most:
        several = "" if frames == 1 else f"{frames} or more frames of "
        raise _RefusedError(
            f"the image has {several}{width} x {height} pixels; at most {most} are "
            "decoded."
        )
    return pixels, width * height * (each + _FURTHER_FRAME * (frames - 1))


def _measure(data: bytes, most: float = math.inf) -> "_Measured":
    """Return width, height, number of frames, and bytes for each pixel of the first.

    Frames beyond `most` pixels are not counted.
    """
    for start, measure in _FORMATS:
        if data.startswith(start):
            try:
                measured = measure(data, most)
            except (IndexError, struct.error):
                return None  # cut short
            return measured if measured and min(measured) >= 1 else None
    return None


def _jpeg(data: bytes, most: float) -> "_Measured":
    position = 2
    for _ in range(100 + len(data) // 64):
        found = _JPEG_MARKER.search(data, position + 1)
        if found is None:
            return None
        marker, position = data[found.start()], found.end()
        if marker in _JPEG_FRAMES:
            # libjpeg takes the first; it refuses an image with a second one.
            height, width = struct.unpack_from(">HH", data, position + 3)
            return width, height, 1, _OPAQUE
        if marker in _JPEG_ENDS:
            return None
        if marker not in _JPEG_STANDALONE:
            # libjpeg reads a length of less than its own two bytes as two.
            position += max(2, struct.unpack_from(">H", data, position)[0])
    raise _EndlessHeaderError


def _png(data: bytes, most: float) -> "_Measured":
    position = 8
    for _ in range(100 + len(data) // 64):
        # libpng skips unknown chunks before the header.
        length, name = struct.unpack_from(">I4s", data, position)
        if name == b"IHDR":
            # Gray and RGB alone have no alpha; a palette may.
            is_opaque = data[position + 17 : position + 18] in (b"\0", b"\2")
            each = _OPAQUE if is_opaque else _TRANSPARENT
            return *struct.unpack_from(">II", data, position + 8), 1, each
        position += 12 + length
    raise _EndlessHeaderError


def _gif(data: bytes, most: float) -> "_Measured":
    # TensorFlow unpacks all frames, to the size of the largest and not of the screen,
    # and of a file that is cut short those that it finds.
    width = height = frames = 0
    left = 100 + len(data) // 8
    try:
        position = 13 + _color_table(data[10])
        while data[position] in b"!,":
            if data[position] == ord(","):
                size = struct.unpack_from("<HHB", data, position + 5)
                width, height = max(width, size[0]), max(height, size[1])
                frames += 1
                if width * height * frames > most:
                    break
                position += 11 + _color_table(size[2])
            else:
                position += 2
            left -= 1
            while left > 0 and (length := data[position]):
                position += 1 + length
                left -= 1
            if left <= 0:
                raise _EndlessHeaderError
            position += 1
    except (IndexError, struct.error):
        pass
    return width, height, frames, _OPAQUE


def _color_table(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _bmp(data: bytes, most: float) -> "_Measured":
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height), 1, _BMP


def _webp(data: bytes, most: float) -> "_Measured":
    if data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        # libwebp refuses a frame of another size than the canvas.
        width, over, height, above = struct.unpack_from("<HBHB", data, 24)
        each = _TRANSPARENT if data[20] & 0x10 else _OPAQUE
        return (over << 16) + width + 1, (above << 16) + height + 1, 1, each
    # libwebp also takes a bare frame without the name and length of a chunk.
    start = 20 if kind in (b"VP8 ", b"VP8L") else 12
    if kind == b"VP8L" or (kind != b"VP8 " and data[start] == 0x2F):
        bits = struct.unpack_from("<I", data, start + 1)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1, _TRANSPARENT
    width, height = struct.unpack_from("<HH", data, start + 6)
    return width & 0x3FFF, height & 0x3FFF, 1, _OPAQUE


_Measured = tuple[int, int, int, int] | None
_Measure = Callable[[bytes, float], _Measured]
_FORMATS: tuple[tuple[bytes, _Measure], ...] = (
    (b"\xff\xd8\xff", _jpeg),
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"GIF8", _gif),
    (b"BM", _bmp),
    (b"RIFF", _webp),
)
