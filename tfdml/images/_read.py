"""Read images of any format as upright RGB, on a given background color.

Training, the gallery builder and the search client all read through this file, so
that one image has one embedding (see docs/images.md for what the exported graph
does with the bytes that other clients send).
"""

import io
import os
from os import PathLike
from pathlib import Path

import numpy as np
import simplejpeg
from cykooz_resizer import (
    CropBox,
    FilterType,
    ImageData,
    PixelType,
    ResizeAlg,
    ResizeOptions,
    Resizer,
)
from PIL import Image, ImageOps

from tfdml.pillow_warnings import warnings_ignored

WHITE = (255, 255, 255)
"""The color that shines through transparent pixels."""

IMAGE_SUFFIXES = frozenset(
    suffix
    for suffix, kind in Image.registered_extensions().items()
    if kind in Image.OPEN
)
"""Lower-case file name endings that Pillow can open, such as `.jpg`."""


_BILINEAR = ResizeAlg.convolution(FilterType.bilinear)
# What stands before the metadata that tell an orientation: EXIF and XMP.
_MAY_BE_TURNED = (b"Exif\0", b"ns.adobe.com/xap")


class UnreadableImageError(ValueError):
    """The file or the bytes are not an image that Pillow can read."""


def list_images(images_folder: str | PathLike[str]) -> list[str]:
    """List the images below a folder, at any depth, sorted.

    An image is a file whose name ends as an image's does. Hidden files and folders
    (their name begins with a dot) are left out; links to folders are followed.

    Args:
        images_folder: Folder with a folder for each class, or with images only.

    Returns:
        Paths below the folder, with forward slashes.

    Raises:
        NotADirectoryError: There is no such folder.
        OSError: A folder in it cannot be read.
        ValueError: It holds no image, or a file name is not UTF-8.
    """
    root = Path(images_folder)
    if not root.is_dir():
        raise NotADirectoryError(
            "`images_folder` must be a folder with images. "
            f"Received: images_folder={str(images_folder)!r}."
        )
    seen: set[str] = set()
    found = []

    def refuse(error: OSError) -> None:
        raise error

    for folder, subfolders, files in os.walk(root, followlinks=True, onerror=refuse):
        # A link may lead back to a folder above it.
        real = os.path.realpath(folder)
        if real in seen:
            subfolders.clear()
            continue
        seen.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        below = Path(folder).relative_to(root)
        found += [
            (below / name).as_posix()
            for name in files
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")
        ]
    if not found:
        raise ValueError(
            f"There is no image in the folder {str(images_folder)!r}: no file whose "
            "name ends in .jpg, .png, .webp or another ending that Pillow reads."
        )
    for path in found:
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"The file name {path!r} is not valid UTF-8; rename the file."
            ) from error
    return sorted(found)


def read_image(
    source: str | PathLike[str] | bytes,
    *,
    background: tuple[int, int, int] = WHITE,
    max_pixels: int = 100_000_000,
) -> np.ndarray:
    """Read one image as upright RGB.

    The EXIF orientation is applied, transparent pixels are composited on
    `background`, the first frame of an animation is taken, 16-bit gray is scaled to
    8 bits, and every color mode is converted to RGB.

    Args:
        source: Path of a file, or the encoded bytes themselves.
        background: RGB color under transparent pixels, each 0 to 255.
        max_pixels: Width times height above which the image is refused before it
            is decoded.

    Returns:
        uint8 array `[height, width, 3]`.

    Raises:
        UnreadableImageError: The image is broken, of an unknown format or larger
            than `max_pixels`. The message names the file and the reason.
        FileNotFoundError: There is no such file.
    """
    name = "image bytes" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        pixels = _plain_jpeg(data, max_pixels)
        if pixels is not None:
            return pixels
        # Pillow warns of a decompression bomb; the size rule here is `max_pixels`.
        with warnings_ignored(), Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise UnreadableImageError(
                    f"{name}: an image may have at most {max_pixels} pixels. "
                    f"Received: {width} x {height}."
                )
            image.load()
            # In place, because an image that lies upright would be copied.
            ImageOps.exif_transpose(image, in_place=True)
            return _to_rgb(image, background)
    except FileNotFoundError:
        raise
    except UnreadableImageError:
        raise
    except Image.UnidentifiedImageError:
        reason = "no image format that Pillow knows"
    except Exception as error:  # Pillow's decoders raise whatever they meet
        reason = f"{type(error).__name__}: {error}"
    raise UnreadableImageError(f"{name}: cannot be read as an image ({reason}).")


def _plain_jpeg(data: bytes, max_pixels: int) -> np.ndarray | None:
    """Decode a JPEG by libjpeg-turbo alone: Pillow's pixels in two thirds of its time.

    None where Pillow must say what becomes of it: another format or color space, too
    many pixels, an image that may lie on its side, data that libjpeg warns of.
    """
    if data[:3] != b"\xff\xd8\xff" or any(word in data for word in _MAY_BE_TURNED):
        return None
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
        if height * width > max_pixels or colors not in ("YCbCr", "Gray"):
            return None
        return simplejpeg.decode_jpeg(data, "RGB")
    except ValueError:
        return None


def _to_rgb(image: Image.Image, background: tuple[int, int, int]) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        if image.mode.startswith("I"):
            values = values / 257.0  # 65535 becomes 255
        gray = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        return np.repeat(gray[:, :, np.newaxis], 3, axis=2)
    if image.has_transparency_data:
        canvas = Image.new("RGBA", image.size, (*background, 255))
        canvas.alpha_composite(image.convert("RGBA"))
        image = canvas
    return np.array(image.convert("RGB"))


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

    The result is Pillow's within a level, in a quarter of its time, and the same on
    every processor. A part of an image is resized exactly as if the whole had been.

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
    options = ResizeOptions(resize_alg=_BILINEAR, use_alpha=False)
    # A box that ends at the image's edge may seem to end behind it by rounding.
    options.crop_box = CropBox(
        left, top, min(across, columns - left), min(down, rows - top)
    )
    source = ImageData(columns, rows, PixelType.U8x3, image.tobytes())
    resized = ImageData(width, height, PixelType.U8x3)
    # One for each call, because it keeps buffers and calls come from several threads.
    Resizer().resize(source, resized, options)
    pixels = np.frombuffer(resized.get_buffer(), "uint8")
    return pixels.reshape(height, width, 3)


def encode_png(image: np.ndarray) -> bytes:
    """Encode a uint8 image `[height, width, 3]` as PNG, without loss."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
