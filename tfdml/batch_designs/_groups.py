"""Draw batches of m images of each of n classes."""

import numpy as np

from tfdml._core.arguments import one_of, whole
from tfdml.batch_designs._design import BatchDesign, Labels, find_classes, some_images
from tfdml.batch_designs._importance import group_importance


class GroupBatches(BatchDesign):
    """The (m, n)-group design: m images of each of n classes make a batch.

    A pass shuffles the classes and splits them into groups of n, so no class occurs
    twice in a pass; leftover classes that do not fill a group wait for another pass.
    From a class with more than m images, m different ones are drawn. A class with
    fewer contributes all of its images, with as few repeats as possible to make m: a
    class of one image repeats it m times. (With augmentation, each repeat looks
    different.) So every batch has m * n images. With `small_classes="leave_out"`, as
    in the paper, classes with fewer than m images are not used, and no image occurs
    twice in a pass.

    A pass depends only on the seed and its number, so a run can resume anywhere.

    Args:
        labels: Class of each image, integers or strings, `[N]`.
        images_per_class: m, at least 1.
        classes_per_batch: n, at least 1 and at most the number of classes.
        small_classes: What to do with classes of fewer than m images: "repeat" or
            "leave_out".
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> design = GroupBatches([0, 0, 1, 1, 2, 2], 2, 3, seed=1)
        >>> [sorted(batch.tolist()) for batch in design.batches(0)]
        [[0, 1, 2, 3, 4, 5]]

    Reference:
        Hong, Park and Kim call this the group design in Deep Metric Learning via
        Weighted Contrastive Loss; elsewhere it is the PK sampler.
    """

    def __init__(
        self,
        labels: Labels,
        images_per_class: int,
        classes_per_batch: int,
        *,
        small_classes: str = "repeat",
        seed: int = 0,
    ) -> None:
        self._classes = find_classes(labels)
        super().__init__(int(self._classes.counts.sum()), seed)
        self.images_per_class: int = whole("images_per_class", images_per_class)
        self.classes_per_batch: int = whole("classes_per_batch", classes_per_batch)
        self.small_classes: str = one_of(
            "small_classes", small_classes, ("repeat", "leave_out")
        )
        leave_out = small_classes == "leave_out"
        self._members = self._classes.at_least(
            self.images_per_class if leave_out else 1
        )
        if self.classes_per_batch > len(self._members):
            kind = f" of {images_per_class} images or more" if leave_out else ""
            raise ValueError(
                f"`classes_per_batch` must be at most the number of classes{kind}, "
                f"{len(self._members)}. Received: classes_per_batch="
                f"{classes_per_batch}."
            )

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return len(self._members) // self.classes_per_batch

    @property
    def batch_size(self) -> int:
        """Number of images in a batch, m * n."""
        return self.images_per_class * self.classes_per_batch

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass; the images of a class stand together."""
        classes = generator.permutation(len(self._members))
        used = classes[: len(self) * self.classes_per_batch]
        chosen = [
            some_images(self._members[c], self.images_per_class, generator)
            for c in used
        ]
        return np.concatenate(chosen).reshape(len(self), self.batch_size)

    def importance_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Compute the weights that undo what the design favors (Eqs. 9 and 25).

        Returns:
            Two float64 arrays `[C]` over the classes in ascending order of their
            labels, as `tfdml.batch_designs.group_importance` returns them; 0 for
            classes that are left out.

        Raises:
            ValueError: The design repeats images of small classes, for which the paper
                has no weights, or a batch holds one image.
        """
        counts = self._classes.counts
        if self.small_classes == "repeat" and counts.min() < self.images_per_class:
            small = self._classes.values[counts.argmin()]
            raise ValueError(
                "Importance weights need classes of `images_per_class` images or more: "
                "leave smaller ones out by `small_classes='leave_out'`. Received: "
                f"{counts.min()} of class {small}, images_per_class="
                f"{self.images_per_class}."
            )
        return group_importance(counts, self.images_per_class, self.classes_per_batch)
