"""Read the images that a client takes: files, encoded bytes or pixels."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfdml.images import UnreadableImageError, read_image

ImageSource = bytes | str | PathLike[str] | NDArray[np.uint8]
Unreadable = UnreadableImageError


@dataclass(frozen=True)
class FolderEmbeddings:
    """The embeddings of a folder.

    Attributes:
        paths: The images, below the folder, sorted.
        embeddings: float32 `[len(paths), dimension]`.
        skipped: Why an image was left out, by its path.
        notes: What looks like an image and is not one to read, or what links lead to
            outside of the folder.
    """

    paths: tuple[str, ...]
    embeddings: np.ndarray
    skipped: dict[str, str]
    notes: tuple[str, ...] = ()


def read_pixels(image: ImageSource, max_pixels: int) -> NDArray[np.uint8]:
    """Return the pixels of an image, upright and on white.

    Args:
        image: Path of a file, encoded bytes, or pixels, which are returned as they are.
        max_pixels: Width times height above which a file is refused.

    Returns:
        uint8 `[height, width, 3]`.

    Raises:
        UnreadableImageError: The file is broken or missing.
        OSError, MemoryError: The machine cannot read it.
        ValueError: Pixels of another shape or dtype.
    """
    if not isinstance(image, np.ndarray):
        return read_image(image, max_pixels=max_pixels)
    is_image = image.ndim == 3 and image.shape[2] == 3 and image.size > 0
    if image.dtype != np.uint8 or not is_image:
        raise ValueError(
            "Pixels in `images` must be uint8 arrays [height, width, 3]. "
            f"Received: {image.dtype} {list(image.shape)}."
        )
    return image


def check_is_list(images: object) -> None:
    """Refuse a single image in the place of a list.

    Raises:
        TypeError: `images` is a path, bytes, or the pixels of one image.
    """
    is_single = isinstance(images, np.ndarray) and images.ndim == 3
    if is_single or isinstance(images, bytes | str | PathLike):
        raise TypeError(
            "`images` must be a list of images; write [image] for a single "
            f"one. Received: {type(images).__name__}."
        )


def check_at_least_1(name: str, value: int) -> None:
    """Refuse a number below 1.

    Raises:
        ValueError: It is below 1.
    """
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")


def path_below(root: Path, image: ImageSource) -> str:
    """Return the path of an image below a folder, with forward slashes."""
    return Path(str(image)).relative_to(root).as_posix()


def how_to_skip(error: UnreadableImageError) -> UnreadableImageError:
    """Return the error with what to do about an image that cannot be read."""
    is_large = "`max_pixels`" in str(error)
    remedy = "Allow more with `--max-pixels`" if is_large else "Repair or remove it"
    return UnreadableImageError(
        f"{error} {remedy}, or skip such files with `--skip-unreadable`."
    )
