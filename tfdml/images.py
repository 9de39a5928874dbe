"""Reading pictures: whatever Pillow opens becomes upright RGB on a stated colour.

Training, the gallery builder and the search client all read through this file, so
that one picture has one embedding (see docs/images.md for what the exported graph
does with the bytes that other clients send).
"""

import io
import os
import warnings
from os import PathLike
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

__all__ = [
    "IMAGE_SUFFIXES",
    "WHITE",
    "UnreadableImageError",
    "encode_png",
    "list_images",
    "read_image",
    "resize_image",
]

WHITE = (255, 255, 255)
"""The colour that shines through transparent pixels."""

IMAGE_SUFFIXES = frozenset(
    suffix
    for suffix, kind in Image.registered_extensions().items()
    if kind in Image.OPEN
)
"""Lower-case file name endings that Pillow can open, such as `.jpg`."""


class UnreadableImageError(ValueError):
    """The file or the bytes are not a picture that Pillow can read."""


def list_images(images_folder: str | PathLike[str]) -> list[str]:
    """List the pictures below a folder, at any depth, sorted.

    A picture is a file whose name ends as an image's does. Hidden files and folders
    (their name begins with a dot) are left out; links to folders are followed.

    Args:
        images_folder: Folder with a folder for each class, or with pictures only.

    Returns:
        Paths below the folder, with forward slashes.

    Raises:
        NotADirectoryError: There is no such folder.
        OSError: A folder in it cannot be read.
        ValueError: It holds no picture, or a file name is not UTF-8.
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
    """Read one picture as upright RGB.

    The EXIF orientation is applied, transparent pixels are composited on
    `background`, the first frame of an animation is taken, 16-bit grey is scaled to
    8 bits, and every colour mode is converted to RGB.

    Args:
        source: Path of a file, or the encoded bytes themselves.
        background: RGB colour under transparent pixels, each 0 to 255.
        max_pixels: Width times height above which the picture is refused before it
            is decoded.

    Returns:
        uint8 array `[height, width, 3]`.

    Raises:
        UnreadableImageError: The picture is broken, of an unknown format or larger
            than `max_pixels`. The message names the file and the reason.
        FileNotFoundError: There is no such file.
    """
    name = "image bytes" if isinstance(source, bytes) else str(source)
    opened = io.BytesIO(source) if isinstance(source, bytes) else Path(source)
    try:
        # Pillow warns of a decompression bomb; the size rule here is `max_pixels`.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(opened) as image:
                width, height = image.size
                if width * height > max_pixels:
                    raise UnreadableImageError(
                        f"{name}: a picture may have at most {max_pixels} pixels. "
                        f"Received: {width} x {height}."
                    )
                image.load()
                upright = ImageOps.exif_transpose(image)
                return _to_rgb(upright, background)
    except FileNotFoundError:
        raise
    except UnreadableImageError:
        raise
    except Image.UnidentifiedImageError:
        reason = "no image format that Pillow knows"
    except Exception as error:  # Pillow's decoders raise whatever they meet
        reason = f"{type(error).__name__}: {error}"
    raise UnreadableImageError(f"{name}: cannot be read as an image ({reason}).")


def _to_rgb(image: Image.Image, background: tuple[int, int, int]) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        if image.mode.startswith("I"):
            values = values / 257.0  # 65535 becomes 255
        grey = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    if image.has_transparency_data:
        canvas = Image.new("RGBA", image.size, (*background, 255))
        canvas.alpha_composite(image.convert("RGBA"))
        image = canvas
    return np.array(image.convert("RGB"))


def resize_image(image: np.ndarray, size: int) -> np.ndarray:
    """Squash a picture to a square, with an antialiased bilinear filter.

    Args:
        image: uint8 array `[height, width, 3]`.
        size: Side of the square in pixels, at least 1.

    Returns:
        uint8 array `[size, size, 3]`.
    """
    if image.shape[:2] == (size, size):
        return image
    resized = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    return np.array(resized)


def encode_png(image: np.ndarray) -> bytes:
    """Encode a uint8 picture `[height, width, 3]` as PNG, without loss."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
