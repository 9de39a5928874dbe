"""Find labeled images in a folder, and split classes."""

import hashlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from tfdml.images import FoundImages, find_images
from tfdml.messages import cut, shown
from training.data.data_set import SPLITS, DataSet


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
    root = Path(root)
    found = find_images(root) if found is None else found
    outside = [path for path in found.paths if "/" not in path]
    if outside:
        raise ValueError(
            f"Each image in {cut(root)} must be in the folder of its class, such as "
            f"{cut(root / 'cat')}/1.jpg. Received: {cut(outside[0])} in no such folder."
        )
    if splits := found.split_folders:
        first = cut(root / splits[0], 150)
        raise ValueError(
            f"The folders in {cut(root, 150)} must be classes. Received: "
            f"{', '.join(splits)}, which are the names of splits. Name one of them, "
            f"such as {first}, if the folders in it are the classes: a run splits them "
            "itself. To keep these splits write a manifest with the column `split`."
        )
    names = [path.split("/", 1)[0] for path in found.paths]
    class_names, labels = np.unique(names, return_inverse=True)
    if len(class_names) < 2:
        inside = {path.rsplit("/", 1)[0] for path in found.nested}
        only = str(class_names[0])
        below = cut(root / only, 150)
        hint = f" Name the folder of classes, such as {below}."
        raise ValueError(
            f"{cut(root)} must hold at least 2 classes, each a folder of images: "
            f"there is nothing to tell apart. Received: only {shown(only)}."
            + (hint if len(inside) > 1 else "")
        )
    classes_of = split_classes(
        class_names.tolist(),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        seed=seed,
    )
    split_of = {name: split for split in SPLITS for name in classes_of[split]}
    return DataSet(
        images=tuple(root / path for path in found.paths),
        labels=labels.astype("int64"),
        splits=np.array([split_of[name] for name in names]),
        class_names=tuple(class_names.tolist()),
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
