"""Define batch designs, and find the classes of labels."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tfdml._core.arguments import whole
from tfdml._core.labels import as_labels

Labels = Sequence[int] | Sequence[str] | ArrayLike


class BatchDesign(ABC):
    """A rule that says which images share a batch.

    A design has passes, numbered from 0, of `len(design)` batches each; what a pass is,
    each design says. A pass depends on the arguments of the design and on its number
    alone: batch s of a run is batch s % len(design) of pass s // len(design), on any
    machine and in any process. So nothing needs to be saved but s to take a run up.

    Args:
        images: Number of images of the data set.
        seed: Seed, at least 0.
    """

    def __init__(self, images: int, seed: int) -> None:
        self.images: int = images
        self.seed: int = whole("seed", seed, 0)

    @abstractmethod
    def __len__(self) -> int:
        """Number of batches in a pass."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Number of images in a batch."""

    @abstractmethod
    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass.

        Args:
            generator: Where all chance comes from.

        Returns:
            int64 array `[len(self), batch_size]` of positions in the data set.
        """

    def batches(self, pass_number: int) -> np.ndarray:
        """Return all batches of a pass.

        Args:
            pass_number: Which pass, from 0.

        Returns:
            int64 array `[len(self), batch_size]` of positions in the data set.

        Raises:
            ValueError: `pass_number` is no whole number of at least 0.
        """
        pass_number = whole("pass_number", pass_number, 0)
        return self.draw_pass(np.random.default_rng([self.seed, pass_number]))


class Classes(NamedTuple):
    """The classes of a data set.

    Attributes:
        values: Labels that occur, ascending, `[C]`.
        members: For each class the positions of its images, ascending.
    """

    values: np.ndarray
    members: list[np.ndarray]

    @property
    def counts(self) -> np.ndarray:
        """Number of images of each class, int64 `[C]`."""
        return np.array([len(images) for images in self.members], dtype="int64")

    def at_least(self, count: int) -> list[np.ndarray]:
        """Return the members of the classes with so many images."""
        return [images for images in self.members if len(images) >= count]


def encode_labels(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Convert labels of any kind to numbers: losses and `fit` take no strings.

    Args:
        labels: Whole numbers, bools or strings, `[N]` or `[N, 1]`.

    Returns:
        int64 array `[N]` of class numbers from 0, and the labels `[C]` in ascending
        order: `names[numbers]` are the labels again.

    Raises:
        ValueError: The labels are of another type or shape, or one is missing.

    Example:
        >>> numbers, names = encode_labels(["jay", "wren", "jay"])
        >>> numbers.tolist(), names.tolist()
        ([0, 1, 0], ['jay', 'wren'])
    """
    names, numbers = np.unique(as_labels("labels", labels), return_inverse=True)
    return numbers.astype("int64"), names


def find_classes(labels: Labels) -> Classes:
    """Find the classes of labels and the images of each.

    Args:
        labels: Integers or strings, `[N]`.

    Returns:
        The classes.

    Raises:
        ValueError: The labels are of another type or shape, or one is missing.
    """
    numbers, names = encode_labels(labels)
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order])) + 1
    return Classes(names, np.split(order, starts) if len(order) else [])


def some_images(
    members: np.ndarray, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw images of a class, with as few repeats as possible where it has fewer."""
    rounds = -(-count // len(members))
    shuffled = [generator.permutation(members) for _ in range(rounds)]
    return np.concatenate(shuffled)[:count]
