"""Hold a data set: its images, labels, splits and further columns."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import shown
from tfdml.metrics import Comparisons

SPLITS = ("train", "validation", "test")
ROLES = ("", "query", "gallery")


@dataclass(frozen=True)
class DataSet:
    """Images with their labels and splits; the arrays have one entry an image.

    No class is in two splits: retrieval is measured on classes that were not trained.

    Args:
        images: Paths of files, or a uint8 array `[N, height, width, 3]`.
        labels: Class ids, positions in `class_names`, int64 `[N]`; or continuous
            labels, finite numbers `[N, ...]`: vectors, maps, or several vectors an
            image, as a label distance takes them.
        splits: `"train"`, `"validation"` or `"test"` for each image.
        class_names: Name of each class; empty for continuous labels.
        roles: `"query"`, `"gallery"`, or `""` for an image that is both; None where
            every image is both.
        categories: Super-class of each image, or None.
        sequences: Clip or burst that each image was taken from, or None.
        boxes: Part of each image to use, int64 `[N, 4]`: x and y of the upper left
            corner in the upright image, width, height. A width of 0 means the whole
            image. None where every image is used whole.
    """

    images: tuple[Path, ...] | np.ndarray
    labels: np.ndarray
    splits: np.ndarray
    class_names: tuple[str, ...] = ()
    roles: np.ndarray | None = None
    categories: np.ndarray | None = None
    sequences: np.ndarray | None = None
    boxes: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check what does not need the files."""
        for name in ("labels", "splits", "roles", "categories", "sequences", "boxes"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.images):
                raise ValueError(
                    f"`{name}` must have one entry per image. Received: {len(values)} "
                    f"entries for {len(self.images)} images."
                )
        _check_known("splits", self.splits, SPLITS)
        if self.roles is not None:
            _check_known("roles", self.roles, ROLES)
        if self.boxes is not None and self.boxes.shape[1:] != (4,):
            raise ValueError(
                "`boxes` must have the shape [N, 4]: x, y, width, height. "
                f"Received: shape={self.boxes.shape}."
            )
        if self.is_continuous:
            if self.class_names:
                raise ValueError(
                    "Continuous `labels` have no `class_names`; class ids must be "
                    f"integers [N]. Received: {self.labels.dtype} "
                    f"{list(self.labels.shape)} with {len(self.class_names)} names."
                )
            if not np.isfinite(self.labels).all():
                raise ValueError("Continuous `labels` must be finite.")
            return
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            raise ValueError(
                "`labels` must be class ids, integers [N], or continuous, numbers "
                f"[N, ...]. Received: {self.labels.dtype} {list(self.labels.shape)}."
            )
        if len(self) and not (
            self.labels.min() >= 0 and self.labels.max() < len(self.class_names)
        ):
            raise ValueError(
                "`labels` must be positions in `class_names`, of which there are "
                f"{len(self.class_names)}. Received: {self.labels.min()} to "
                f"{self.labels.max()}."
            )
        pairs = np.unique(
            np.stack([self.labels, np.unique(self.splits, return_inverse=True)[1]], 1),
            axis=0,
        )
        classes, counts = np.unique(pairs[:, 0], return_counts=True)
        shared = [self.class_names[c] for c in classes[counts > 1]]
        if shared:
            raise ValueError(
                "Each class must be in one split. In two or more: "
                f"{len(shared)}, such as {shown(shared[0])}."
            )

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    @property
    def is_continuous(self) -> bool:
        """Whether the labels are vectors or maps to compare, not classes."""
        return self.labels.ndim >= 2 and self.labels.dtype.kind in "fiu"

    @property
    def has_categories(self) -> bool:
        """Whether there are two categories or more."""
        return self.categories is not None and len(np.unique(self.categories)) > 1

    def select(self, indices: Iterable[int] | np.ndarray) -> "DataSet":
        """Return some of the images, in the order of the indices.

        Classes without an image left are dropped and the others renumbered in the same
        order.
        """
        chosen = np.asarray(indices, dtype="int64").reshape(-1)
        kept: dict[str, Any] = {}
        for field in fields(self):
            values = getattr(self, field.name)
            if field.name == "images" and isinstance(values, tuple):
                kept["images"] = tuple(values[i] for i in chosen)
            elif isinstance(values, np.ndarray):
                kept[field.name] = values[chosen]
        if self.is_continuous:
            return DataSet(**kept)
        used, kept["labels"] = np.unique(kept["labels"], return_inverse=True)
        return DataSet(**kept, class_names=tuple(self.class_names[c] for c in used))

    def of_split(self, split: str) -> "DataSet":
        """Return the images of a split."""
        _check_known("split", [split], SPLITS)
        return self.select(np.flatnonzero(self.splits == split))

    def is_query(self) -> np.ndarray:
        """Return which images are searched with, bool `[N]`."""
        if self.roles is None:
            return np.ones(len(self), dtype=bool)
        return self.roles != "gallery"

    def is_gallery(self) -> np.ndarray:
        """Return which images are searched, bool `[N]`."""
        if self.roles is None:
            return np.ones(len(self), dtype=bool)
        return self.roles != "query"

    def has_positive(self) -> np.ndarray:
        """Return which images are queries with something to find, bool `[N]`.

        Of classes, another image of the class in the gallery, and of another sequence
        where sequences are known; with continuous labels, any other image.
        """
        if self.is_continuous:
            return np.full(len(self), len(self) > 1)
        return self.comparisons().has_positive

    def largest_k(self) -> int:
        """Return how many images every query with something to find is compared with.

        No metric of the first k results has a larger k; 0 without such a query.
        """
        if self.is_continuous:
            return len(self) - 1
        compared = self.comparisons()
        counts = compared.compared_counts[compared.has_positive]
        return int(counts.min()) if len(counts) else 0

    def comparisons(self) -> Comparisons:
        """Return who is compared with whom, of images with classes."""
        return Comparisons(
            len(self),
            self.labels,
            is_query=self.is_query(),
            is_gallery=self.is_gallery(),
            groups=self.sequences,
        )

    def name_of(self, index: int) -> str:
        """Return what an image is called in messages."""
        source = self.images[index]
        return str(source) if isinstance(source, Path) else f"image {index}"


def halve_classes(labels: np.ndarray, class_count: int) -> np.ndarray:
    """Split as the papers do: the first half of the classes trains, the rest tests.

    Args:
        labels: Class ids in the order of the data set, int `[N]`.
        class_count: Number of classes; of an odd number the middle one tests.

    Returns:
        `"train"` or `"test"`, `[N]`.
    """
    return np.where(np.asarray(labels) < class_count // 2, "train", "test")


def _check_known(name: str, values: Iterable[str], known: tuple[str, ...]) -> None:
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, known))}. "
            f"Received: {shown(unknown[0])}."
        )
