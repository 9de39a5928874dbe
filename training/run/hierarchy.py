"""Draw batches by a tree of the classes, and hand it to the loss."""

from typing import Any

import keras
import numpy as np

from tfdml.batch_designs import ClassHierarchy, HierarchyBatches

from ..data.split import Split
from .mining import MinedEpochs, Mining


class HierarchyEpochs(MinedEpochs):
    """Anchor-neighborhood batches, with the tree of the network of each epoch.

    Args:
        design: The design.
        steps_per_epoch: Number of batches in an epoch.
        with_targets: Whether the loss takes the rows of `ClassHierarchy.targets` in
            place of labels.
    """

    _design: HierarchyBatches

    def __init__(
        self, design: HierarchyBatches, steps_per_epoch: int, *, with_targets: bool
    ) -> None:
        super().__init__(design, steps_per_epoch)
        self._with_targets = with_targets
        self._trees: dict[int, ClassHierarchy] = {}

    def take(self, epoch: int, found: Any) -> None:
        """Draw with the tree of an epoch."""
        self._design.hierarchy = found
        # Batches of the epoch before may still be read.
        self._trees.pop(epoch - 2, None)
        self._trees[epoch] = found

    def targets(self, step: int, labels: np.ndarray) -> np.ndarray:
        """Return what the loss takes for batch `step` of the run, counted from 0."""
        if not self._with_targets:
            return labels
        # Keras looks at the first batch of a run, also of one that is taken up later.
        tree = self._trees.get(step // len(self)) or next(iter(self._trees.values()))
        return tree.targets(labels)


class HierarchyMining(Mining):
    """Embed some images of each training class before each epoch, and make the tree.

    Args:
        design: The design of the run.
        train: The training images.
        embedder: The embedder that is trained.
        levels: L of the tree.
    """

    images_per_class = 16  # tell the mean distances of classes well enough

    def __init__(
        self,
        design: HierarchyEpochs,
        train: Split,
        embedder: keras.Model,
        *,
        levels: int,
    ) -> None:
        super().__init__(design, train, embedder)
        self._levels = levels

    def found(self, embeddings: np.ndarray, labels: np.ndarray) -> ClassHierarchy:
        """Return the tree."""
        return ClassHierarchy(embeddings, labels, levels=self._levels)
