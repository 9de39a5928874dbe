"""Labelled images from a folder, and the split of their classes."""

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tfdml.images import (
    UnreadableImageError,
    list_images,
    read_image,
    resize_image,
)

__all__ = ["ImageFolder", "find_images", "read_images", "split_classes"]


@dataclass(frozen=True)
class ImageFolder:
    """Images of a folder `class/image`; deeper folders belong to the first one.

    Args:
        root: The folder.
        paths: Path of each image below `root`, with `/`, sorted.
        labels: Position of the class of each image in `class_names`, int64 `[N]`.
        class_names: Names of the classes, sorted.
    """

    root: Path
    paths: tuple[str, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]

    def of_classes(self, names: Iterable[str]) -> "ImageFolder":
        """Return the images of some classes, with labels of their own."""
        wanted = set(names)
        keep = [
            i
            for i, label in enumerate(self.labels)
            if self.class_names[label] in wanted
        ]
        return _image_folder(self.root, [self.paths[i] for i in keep])


def find_images(root: str | PathLike[str]) -> ImageFolder:
    """Find the images `class/image` below a folder, by the ending of their names.

    Files are found as by `tfdml.images.list_images`. A class of one image is allowed:
    it trains as a negative (and against other views of itself) and is no query in the
    metrics.

    Args:
        root: The folder.

    Returns:
        The images, at least 2 classes.

    Raises:
        NotADirectoryError: There is no such folder.
        ValueError: It holds no image, an image in no class, or fewer than 2 classes.
    """
    root = Path(root)
    found = list_images(root)
    outside = [path for path in found if "/" not in path]
    if outside:
        raise ValueError(
            f"Each image in {root} must be in the folder of its class, such as "
            f"{root / 'cat'}/1.jpg. Received: {outside[0]} in no such folder."
        )
    images = _image_folder(root, found)
    if len(images.class_names) < 2:
        raise ValueError(
            f"{root} must hold at least 2 classes, each a folder of images: there is "
            f"nothing to tell apart. Received: only {images.class_names[0]!r}."
        )
    return images


def _image_folder(root: Path, paths: Sequence[str]) -> ImageFolder:
    names = [path.split("/", 1)[0] for path in paths]
    class_names, labels = np.unique(names, return_inverse=True)
    return ImageFolder(
        root, tuple(paths), labels.astype("int64"), tuple(class_names.tolist())
    )


def split_classes(
    class_names: Sequence[str],
    *,
    test_fraction: float,
    validation_fraction: float,
    seed: int,
) -> dict[str, list[str]]:
    """Split classes, never their images, into training, validation and test.

    Classes are ordered by the SHA-256 of "seed/name", so the part of a class depends
    on its name and rank alone, not on the order or the number of files. The first
    round(test_fraction * classes), but at least 2, are for testing, as many by
    validation_fraction for validation, all others for training. Where that would leave
    fewer than 2 classes to train on, the test part gives up what they lack, then the
    validation part. A fraction of 0 leaves its part empty.

    Args:
        class_names: Names of the classes.
        test_fraction: From 0 to 1.
        validation_fraction: From 0 to 1.
        seed: Another seed gives another split.

    Returns:
        Names under `"train"`, `"validation"` and `"test"`, each sorted.

    Raises:
        ValueError: A part that is wanted would have fewer than 2 classes.
    """
    ordered = sorted(
        class_names,
        key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).hexdigest(),
    )
    count = len(ordered)
    test, validation = (
        max(2, round(fraction * count)) if fraction else 0
        for fraction in (test_fraction, validation_fraction)
    )
    needed = 2 + 2 * bool(test_fraction) + 2 * bool(validation_fraction)
    if count < needed:
        raise ValueError(
            "The split into classes for training, validation and test needs at least 2 "
            f"classes in each part, so {needed} or more with these fractions "
            f"(test {test_fraction}, validation {validation_fraction}). "
            f"Received: {count} classes. With few classes set `test_fraction` and "
            "`validation_fraction` to 0 and all of them train."
        )
    test = min(test, max(count - 2 - validation, 2 * bool(test_fraction)))
    validation = min(validation, count - 2 - test)
    return {
        "train": sorted(ordered[test + validation :]),
        "validation": sorted(ordered[test : test + validation]),
        "test": sorted(ordered[:test]),
    }


def read_images(
    images: ImageFolder,
    size: int,
    *,
    skip_unreadable: bool = False,
    description: str = "read",
) -> tuple[np.ndarray, ImageFolder, list[str]]:
    """Decode images to squares in memory, with a progress bar.

    Args:
        images: Which images.
        size: Side of the squares in pixels.
        skip_unreadable: Leave broken files out instead of raising.
        description: Stands before the progress bar.

    Returns:
        uint8 array `[N, size, size, 3]`, the images that were read, and a line about
        each file that was skipped.

    Raises:
        UnreadableImageError: A file is broken and `skip_unreadable` is False.
    """

    def read(path: str) -> np.ndarray | UnreadableImageError:
        try:
            return resize_image(read_image(images.root / path), size)
        except UnreadableImageError as error:
            return error

    pixels = np.empty((len(images.paths), size, size, 3), dtype="uint8")
    kept: list[str] = []
    skipped: list[str] = []
    with ThreadPoolExecutor() as pool:
        results = pool.map(read, images.paths)
        for path, result in zip(
            images.paths,
            tqdm(results, desc=description, total=len(images.paths), unit="image"),
            strict=True,
        ):
            if isinstance(result, UnreadableImageError):
                if not skip_unreadable:
                    pool.shutdown(cancel_futures=True)
                    raise result
                skipped.append(str(result))
                continue
            pixels[len(kept)] = result
            kept.append(path)
    return pixels[: len(kept)], _image_folder(images.root, kept), skipped
