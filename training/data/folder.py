"""Find labeled images in a folder, and split classes."""

import hashlib
from collections.abc import Sequence
from os import PathLike

import numpy as np

from tfdml.images import FoundImages, labeled_images

from .data_set import SPLITS, DataSet


def read_folder(
    root: str | PathLike[str],
    *,
    found: FoundImages | None = None,
    test_fraction: float = 0.0,
    validation_fraction: float = 0.0,
    seed: int = 0,
) -> DataSet:
    """Find the images `class/image` below a folder, by the ending of their names.

    Files are found as by `tfdml.images.list_images`, in the order of their names;
    deeper folders belong to the first one. A class of one image is allowed: it trains
    as a negative (and against other views of itself) and is no query in the metrics.

    Args:
        root: The folder.
        found: The images in it, where they have been listed.
        test_fraction: Share of the classes for testing, as for `split_classes`.
        validation_fraction: Share of the classes for validation.
        seed: Another seed gives another split.

    Returns:
        The images, at least 2 classes.

    Raises:
        NotADirectoryError: There is no such folder.
        ValueError: It holds no image, an image in no class, folders named as splits in
            place of classes, fewer than 2 classes, or too few for the splits.
    """
    files, labels, class_names = labeled_images(root, found=found)
    classes_of = split_classes(
        class_names,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        seed=seed,
    )
    split_of = {name: split for split in SPLITS for name in classes_of[split]}
    return DataSet(
        images=files,
        labels=labels,
        splits=np.array([split_of[name] for name in class_names])[labels],
        class_names=class_names,
    )


def split_classes(
    class_names: Sequence[str],
    *,
    test_fraction: float,
    validation_fraction: float,
    seed: int,
) -> dict[str, list[str]]:
    """Split classes, never their images, into training, validation and test.

    Classes are ordered by the SHA-256 of "seed/name", so the split of a class depends
    on its name and rank alone, not on the order or the number of files. The first
    round(test_fraction * classes), but at least 2, are for testing, as many by
    validation_fraction for validation, all others for training. Where that would leave
    fewer than 2 classes to train on, the test split gives up what they lack, then
    the validation split. A fraction of 0 leaves its split empty.

    Args:
        class_names: Names of the classes.
        test_fraction: From 0 to 1.
        validation_fraction: From 0 to 1.
        seed: Another seed gives another split.

    Returns:
        Names under `"train"`, `"validation"` and `"test"`, each sorted.

    Raises:
        ValueError: A split that is wanted would have fewer than 2 classes.
    """
    ordered = hash_order(class_names, seed)
    count = len(ordered)
    test, validation = (
        max(2, round(fraction * count)) if fraction else 0
        for fraction in (test_fraction, validation_fraction)
    )
    needed = 2 + 2 * bool(test_fraction) + 2 * bool(validation_fraction)
    if count < needed:
        raise ValueError(
            "The split into classes for training, validation and test needs at least 2 "
            f"classes in each split, so {needed} or more with these fractions "
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


def hash_order(names: Sequence[str], seed: int) -> list[str]:
    """Order names by the SHA-256 of "seed/name": at random, the same everywhere."""
    return sorted(
        names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()
    )
