"""Change the size of images, with an antialiased bilinear filter."""

import numpy as np
from PIL import Image

try:
    import cykooz_resizer as fast
except ImportError:  # Linux on processors other than x86-64 has no wheel of it
    fast = None


def resize_image(image: np.ndarray, size: int) -> np.ndarray:
    """Squash an image to a square, with an antialiased bilinear filter.

    Args:
        image: uint8 array `[height, width, 3]`.
        size: Side of the square in pixels, at least 1.

    Returns:
        uint8 array `[size, size, 3]`.
    """
    resized = resample(image, size, size)
    return resized if resized is image else resized.copy()


def resample(
    image: np.ndarray,
    height: int,
    width: int,
    box: tuple[float, float, float, float] | None = None,
) -> np.ndarray:
    """Change the size of an image, with an antialiased bilinear filter.

    The result is the same on every processor. A part of an image is resized exactly as
    if the whole had been. Where cykooz-resizer is not installed, Pillow resizes: its
    result is within a level, and takes seven times as long.

    Args:
        image: uint8 array `[height, width, 3]`.
        height: Pixels of the result, at least 1.
        width: Pixels of the result, at least 1.
        box: Part of the image: left, top, width and height in pixels, which need
            not be whole; None for all of it.

    Returns:
        uint8 array `[height, width, 3]`, read-only; `image` itself where nothing
        changes.
    """
    rows, columns = image.shape[:2]
    if box is None:
        if (rows, columns) == (height, width):
            return image
        left, top, across, down = 0.0, 0.0, float(columns), float(rows)
    else:
        left, top, across, down = box
    # A box that ends at the image's edge may seem to end behind it by rounding.
    across, down = min(across, columns - left), min(down, rows - top)
    resize = _by_pillow if fast is None else _by_cykooz
    return resize(image, height, width, (left, top, across, down))


def _by_cykooz(
    image: np.ndarray, height: int, width: int, box: tuple[float, float, float, float]
) -> np.ndarray:
    rows, columns = image.shape[:2]
    bilinear = fast.ResizeAlg.convolution(fast.FilterType.bilinear)
    options = fast.ResizeOptions(resize_alg=bilinear, use_alpha=False)
    options.crop_box = fast.CropBox(*box)
    source = fast.ImageData(columns, rows, fast.PixelType.U8x3, image.tobytes())
    resized = fast.ImageData(width, height, fast.PixelType.U8x3)
    # One for each call, because it keeps buffers and calls come from several threads.
    fast.Resizer().resize(source, resized, options)
    pixels = np.frombuffer(resized.get_buffer(), "uint8")
    return pixels.reshape(height, width, 3)


def _by_pillow(
    image: np.ndarray, height: int, width: int, box: tuple[float, float, float, float]
) -> np.ndarray:
    left, top, across, down = box
    whole = Image.fromarray(image)
    resized = whole.resize(
        (width, height),
        Image.Resampling.BILINEAR,
        box=(left, top, left + across, top + down),
    )
    return np.asarray(resized)
