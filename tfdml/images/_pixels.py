"""Bring the pixels of any Pillow mode to RGB of 8 bits, by one rule for each mode.

The range of a pixel comes from the mode and the header, never from the pixels: images
of one kind are scaled alike, and where the range is not stated there is an error.
docs/images.md has the table.
"""

import numpy as np
from PIL import Image, TiffImagePlugin

_STRIP = 2**20  # pixels that are converted at once
_INVERTED = 0  # TIFF's PhotometricInterpretation, WhiteIsZero
_SIGNED = 2  # TIFF's SampleFormat


class PixelRangeError(ValueError):
    """The range of the pixels is unknown, or a pixel is outside of it."""


def to_rgb(image: Image.Image, background: tuple[int, int, int]) -> np.ndarray:
    """Return the pixels of a loaded image on a background, uint8 `[H, W, 3]`.

    Raises:
        PixelRangeError: The range of the pixels is unknown, or a pixel is outside.
    """
    if image.mode == "F":
        return _repeated(_unit_range(image))
    if _is_signed(image):  # Pillow takes -1 of 8 bits for 255
        raise _unknown_range(image)
    if image.mode.startswith("I"):
        return _with_key(_repeated(_whole_numbers(image)), image, background)
    # In strips: each step would copy the whole image, of perhaps a gigabyte.
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    rows = max(1, _STRIP // max(1, width))
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(height, top + rows)))
        pixels[top : top + rows] = np.asarray(_on_background(strip, background))
    return pixels


def _on_background(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    canvas = Image.new("RGBA", image.size, (*background, 255))
    canvas.alpha_composite(image.convert("RGBA"))
    return canvas.convert("RGB")


def _unit_range(image: Image.Image) -> np.ndarray:
    """Scale floats, 0 for black to 1 for white, to 0 to 255."""
    values = np.asarray(image, dtype=np.float64)
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # a NaN is in no range
        raise PixelRangeError(
            "float pixels must be from 0 (black) to 1 (white). Received: "
            f"{low:g} to {high:g}; save the image with 8 or 16 bits per channel"
        )
    return _as_stored(values, 1.0, image) * 255


def _whole_numbers(image: Image.Image) -> np.ndarray:
    """Scale unsigned numbers of more than 8 bits to 0 to 255."""
    bits = _bits(image)
    if bits is None:
        raise _unknown_range(image)
    most = 2**bits - 1
    values = np.asarray(image, dtype=np.float64)
    return _as_stored(values, most, image) * (255 / most)


def _bits(image: Image.Image) -> int | None:
    """Return the bits of a pixel, by the header; None if it states no range."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))[0]
        return bits if bits <= 16 else None
    # Pillow scales JPEG 2000 and PNM of any depth to 16 bits.
    is_full = image.format in ("PNG", "JPEG2000", "PPM", "IM")
    is_unsigned = image.mode != "I" or image.format == "PPM"
    return 16 if is_full and is_unsigned else None


def _is_signed(image: Image.Image) -> bool:
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return False
    return _SIGNED in image.tag_v2.get(TiffImagePlugin.SAMPLEFORMAT, ())


def _unknown_range(image: Image.Image) -> PixelRangeError:
    return PixelRangeError(
        f"the range of its pixels is unknown ({image.format}, mode {image.mode}, "
        "signed or of 32 bits); save the image with 8 or 16 bits per channel"
    )


def _as_stored(values: np.ndarray, most: float, image: Image.Image) -> np.ndarray:
    """Turn a negative around: Pillow does so with 8 bits alone."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        kind = image.tag_v2.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION)
        if kind == _INVERTED:
            return most - values
    return values


def _repeated(gray: np.ndarray) -> np.ndarray:
    levels = np.rint(gray).astype(np.uint8)
    return np.repeat(levels[:, :, np.newaxis], 3, axis=2)


def _with_key(
    pixels: np.ndarray, image: Image.Image, background: tuple[int, int, int]
) -> np.ndarray:
    """Put the background in the place of the one transparent value, if any."""
    key = image.info.get("transparency")
    if isinstance(key, int):
        pixels[np.asarray(image) == key] = background
    return pixels
