"""Draw batches of anchors and their neighbors, for labels without classes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfdml._core.arguments import whole
from tfdml._core.arrays import as_array
from tfdml.batch_designs._design import BatchDesign
from tfdml.neighbors import nearest_neighbors

_BLOCK = 2**22
"""How many distances are held at once: 32 MiB in float64."""


class NeighborBatches(BatchDesign):
    """Batches of anchors, their k nearest neighbors by label, and random images.

    A batch holds A anchors, the k nearest neighbors of each in label space, and random
    other images up to `batch_size`, in this order. No image comes twice in a batch: one
    that is a neighbor of two anchors, or an anchor itself, takes one place.

    A pass shuffles the images and takes each as an anchor once; if fewer than A are
    left over, they wait for another pass. There are no classes, so no class can be too
    small. Images with equal labels are the nearest; among equally near images, the
    first in the data set comes first. (`LogRatioLoss` leaves out pairs of equal
    labels.)

    The neighbors are found once, when the first pass is drawn, by comparing all images
    with each other in blocks (see `tfdml.neighbors`): O(N^2) time, O(N k) memory. A
    pass is an array of N / A x batch_size numbers.

    Args:
        labels: Numbers `[N, ...]`; without `distance` the axes after the first are one
            vector.
        batch_size: Number of images in a batch, at least A (k + 1) and at most N.
        neighbors: k, at least 1.
        anchors: A, at least 1.
        distance: Maps labels `[A, ...]` and labels `[N, ...]` to distances `[A, N]`,
            as the functions of `tfdml.ops` do. `None` is the squared
            Euclidean distance of the labels as float32.
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> design = NeighborBatches([0.0, 1.0, 5.0, 6.0], 2, neighbors=1)
        >>> {int(a): int(n) for a, n in sorted(design.batches(0).tolist())}
        {0: 1, 1: 0, 2: 3, 3: 2}

    Reference:
        Kim, Seo, Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision,
        CVPR 2019, section 5: an anchor, its 5 nearest neighbors and random images, 150
        in all. There only the anchor of a batch is compared with the others; here
        `LogRatioLoss` takes each image as an anchor.
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int = 150,
        *,
        neighbors: int = 5,
        anchors: int = 1,
        distance: Callable[[np.ndarray, np.ndarray], Any] | None = None,
        seed: int = 0,
    ) -> None:
        array = as_array("labels", labels)
        if array.dtype.name == "bfloat16":
            array = array.astype("float32")
        if not array.ndim or array.dtype.kind not in "fiub":
            raise ValueError(
                "`labels` must be numbers of shape [N, ...]. "
                f"Received: shape={array.shape}, dtype={array.dtype}."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise ValueError(
                f"`labels` must be finite. Received: a value that is not, in row {row}."
            )
        super().__init__(len(array), seed)
        self._labels = array
        self._distance = distance
        self.neighbors: int = whole("neighbors", neighbors)
        self.anchors: int = whole("anchors", anchors)
        least = self.anchors * (self.neighbors + 1)
        self._batch_size = whole("batch_size", batch_size, least)
        if self._batch_size > self.images:
            raise ValueError(
                f"`batch_size` must be at most the number of images, {self.images}. "
                f"Received: batch_size={batch_size}."
            )
        self._nearest: np.ndarray | None = None

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return self.images // self.anchors

    @property
    def batch_size(self) -> int:
        """Number of images in a batch."""
        return self._batch_size

    @property
    def nearest(self) -> np.ndarray:
        """The k nearest other images of each, nearest first, int64 `[N, k]`."""
        if self._nearest is None:
            self._nearest = self._find()
        return self._nearest

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass: anchors, neighbors, then random images."""
        order = generator.permutation(self.images)
        batches = np.empty((len(self), self.batch_size), dtype="int64")
        for b, batch in enumerate(batches):
            anchors = order[b * self.anchors : (b + 1) * self.anchors]
            fixed = [*anchors.tolist(), *self.nearest[anchors].ravel().tolist()]
            fixed = list(dict.fromkeys(fixed))  # each once, in this order
            # So many different ones that enough are left without the fixed ones.
            drawn = generator.choice(self.images, self.batch_size, replace=False)
            others = drawn[~np.isin(drawn, fixed)]
            batch[: len(fixed)] = fixed
            batch[len(fixed) :] = others[: self.batch_size - len(fixed)]
        return batches

    def _find(self) -> np.ndarray:
        everyone = np.arange(self.images)
        if self._distance is None:
            vectors = self._labels.reshape(self.images, -1).astype("float32")
            nearest, _ = nearest_neighbors(
                vectors,
                vectors,
                self.neighbors,
                metric="squared_euclidean",
                exclude=everyone,
            )
            return nearest
        rows = max(_BLOCK // self.images, 1)
        blocks = [everyone[s : s + rows] for s in range(0, self.images, rows)]
        return np.concatenate([self._nearest_of(block) for block in blocks])

    def _nearest_of(self, rows: np.ndarray) -> np.ndarray:
        """Find the nearest images of some by the distance function, `[rows, k]`."""
        assert self._distance is not None  # noqa: S101
        found = np.array(self._distance(self._labels[rows], self._labels), "float64")
        if found.shape != (len(rows), self.images) or np.isnan(found).any():
            raise ValueError(
                "`distance` must return numbers of shape "
                f"[{len(rows)}, {self.images}]. "
                f"Received: shape={found.shape}, {np.isnan(found).sum()} of them NaN."
            )
        found[np.arange(len(rows)), rows] = np.inf
        last = self.neighbors - 1
        farthest = np.partition(found, last, axis=1)[:, last]
        nearest = np.empty((len(rows), self.neighbors), dtype="int64")
        for i, row in enumerate(found):
            near = np.flatnonzero(row <= farthest[i])
            # The sort is stable: the first of equal ones comes first.
            nearest[i] = near[np.argsort(row[near], kind="stable")[: self.neighbors]]
        return nearest
