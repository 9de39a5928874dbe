"""Draw batches of classes with their nearest classes in a hierarchy."""

import numpy as np

from tfdml._core.arguments import whole
from tfdml.batch_designs._class_hierarchy import ClassHierarchy
from tfdml.batch_designs._design import BatchDesign, Labels, find_classes, some_images
from tfdml.messages import shown


class HierarchyBatches(BatchDesign):
    """Anchor-neighborhood sampling: classes with those that are nearest to them.

    A batch holds l' random classes, the m - 1 nearest classes of each by the mean
    distance of `ClassHierarchy`, and t random images of each class. Without a
    hierarchy, all l' m classes are random. No class occurs twice in a batch: a class
    whose neighbor is there already gets its next nearest. (The paper does not say what
    then; its count of triplets supposes l' m classes.) A class with fewer than t images
    gives all, with as few repeats as possible to make t.

    A pass is `C // (l' m)` batches of C classes. No class is one of the l' of two
    batches of a pass. A pass depends on the seed, its number and the hierarchy. To
    sample with the current network, set `hierarchy` between passes.

    Args:
        labels: Class of each image, integers or strings, `[N]`.
        anchors: l', at least 1.
        classes_per_anchor: m, at least 2. `anchors` times it is at most the number of
            classes.
        images_per_class: t, at least 1.
        hierarchy: A `ClassHierarchy` of the same classes; `None` for random classes.
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range, or the hierarchy is of other classes.

    Example:
        >>> angles = np.deg2rad([0, 10, 30, 40, 180, 190, 200, 210])
        >>> rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> labels = np.array([1, 1, 2, 2, 3, 3, 4, 4])
        >>> tree = ClassHierarchy(rows, labels)
        >>> design = HierarchyBatches(labels, 1, 2, 2, hierarchy=tree)
        >>> sorted({tuple(sorted(set(labels[b].tolist()))) for b in design.batches(0)})
        [(1, 2), (3, 4)]

    Reference:
        Ge, Huang, Dong and Scott, Deep Metric Learning with Hierarchical Triplet Loss,
        ECCV 2018.
    """

    def __init__(
        self,
        labels: Labels,
        anchors: int,
        classes_per_anchor: int,
        images_per_class: int,
        *,
        hierarchy: ClassHierarchy | None = None,
        seed: int = 0,
    ) -> None:
        self._classes = find_classes(labels)
        super().__init__(int(self._classes.counts.sum()), seed)
        self.anchors: int = whole("anchors", anchors)
        self.classes_per_anchor: int = whole(
            "classes_per_anchor", classes_per_anchor, 2
        )
        self.images_per_class: int = whole("images_per_class", images_per_class)
        if self._classes_per_batch > len(self._classes.members):
            raise ValueError(
                "`anchors` times `classes_per_anchor` must be at most the number of "
                f"classes, {len(self._classes.members)}. Received: {anchors} times "
                f"{classes_per_anchor}."
            )
        self.hierarchy = hierarchy

    @property
    def hierarchy(self) -> ClassHierarchy | None:
        """The hierarchy, or `None`."""
        return self._hierarchy

    @hierarchy.setter
    def hierarchy(self, hierarchy: ClassHierarchy | None) -> None:
        if hierarchy is not None and not np.array_equal(
            hierarchy.names, self._classes.values
        ):
            raise ValueError(
                "`hierarchy` must be of the classes of `labels`. Received: "
                f"{len(hierarchy.names)} classes, {shown(hierarchy.names[:3].tolist())}"
                f", and labels of {len(self._classes.values)}, "
                f"{shown(self._classes.values[:3].tolist())}."
            )
        self._hierarchy = hierarchy

    @property
    def _classes_per_batch(self) -> int:
        return self.anchors * self.classes_per_anchor

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return len(self._classes.members) // self._classes_per_batch

    @property
    def batch_size(self) -> int:
        """Number of images in a batch, l' m t."""
        return self._classes_per_batch * self.images_per_class

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass; the images of a class stand together."""
        order = generator.permutation(len(self._classes.members))
        used = order[: len(self) * self._classes_per_batch].reshape(len(self), -1)
        if self._hierarchy is not None:
            used = np.stack([self._near(row[: self.anchors]) for row in used])
        chosen = [
            some_images(self._classes.members[c], self.images_per_class, generator)
            for c in used.ravel()
        ]
        return np.concatenate(chosen).reshape(len(self), self.batch_size)

    def _near(self, anchors: np.ndarray) -> np.ndarray:
        """Return classes with the nearest ones of each that are not chosen yet."""
        assert self._hierarchy is not None  # noqa: S101
        chosen = anchors
        for anchor in anchors:
            distances = self._hierarchy.distances_from(anchor)
            distances[chosen] = np.inf
            nearest = np.argsort(distances, kind="stable")
            chosen = np.append(chosen, nearest[: self.classes_per_anchor - 1])
        return chosen
