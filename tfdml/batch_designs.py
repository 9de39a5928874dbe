"""Batch designs: which images share a batch. Seeded, NumPy only, opens no file."""

from collections.abc import Sequence

import numpy as np

__all__ = ["GroupBatches"]


class GroupBatches:
    """The (m, n)-group design: m images of each of n classes make a batch.

    One pass shuffles the classes and cuts them into groups of n, so that no class
    comes twice in a pass; the last classes that fill no group are left to another
    pass. From a class with more than m images m different ones are drawn. A class
    with fewer gives all of them, and the smallest number of repeats that makes m: a
    class of one image, m times. (With augmentation a repeat is another view.) So every
    batch has m * n images.

    A pass depends on the seed and its number alone: a run can be taken up anywhere.

    Args:
        labels: Integer class of each image, `[N]`.
        images_per_class: m, at least 1.
        classes_per_batch: n, at least 1 and at most the number of classes.
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> design = GroupBatches([0, 0, 1, 1, 2, 2], 2, 3, seed=1)
        >>> [sorted(batch.tolist()) for batch in design.batches(0)]
        [[0, 1, 2, 3, 4, 5]]

    Reference:
        Hong, Choi and Han call this the group design in Deep Metric Learning via
        Weighted Contrastive Loss; elsewhere it is the PK sampler.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        images_per_class: int,
        classes_per_batch: int,
        *,
        seed: int = 0,
    ) -> None:
        labels = np.asarray(labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(
                "`labels` must be integers of shape [N]. "
                f"Received: shape={labels.shape}, dtype={labels.dtype}."
            )
        for name, value in (
            ("images_per_class", images_per_class),
            ("classes_per_batch", classes_per_batch),
        ):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
        order = np.argsort(labels, kind="stable")
        starts = np.flatnonzero(np.diff(labels[order])) + 1
        self._members = np.split(order, starts) if len(order) else []
        if classes_per_batch > len(self._members):
            raise ValueError(
                "`classes_per_batch` must be at most the number of classes, "
                f"{len(self._members)}. Received: {classes_per_batch}."
            )
        self.images_per_class = images_per_class
        self.classes_per_batch = classes_per_batch
        self.seed = seed

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return len(self._members) // self.classes_per_batch

    @property
    def batch_size(self) -> int:
        """Number of images in a batch, m * n."""
        return self.images_per_class * self.classes_per_batch

    def batches(self, pass_number: int) -> np.ndarray:
        """Return all batches of a pass.

        Args:
            pass_number: Which pass, from 0.

        Returns:
            int64 array `[len(self), m * n]` of positions in `labels`; the images of
            a class stand together.
        """
        generator = np.random.default_rng([self.seed, pass_number])
        classes = generator.permutation(len(self._members))
        used = classes[: len(self) * self.classes_per_batch]
        chosen = [self._draw(self._members[c], generator) for c in used]
        return np.concatenate(chosen).reshape(len(self), self.batch_size)

    def _draw(self, members: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        rounds = -(-self.images_per_class // len(members))
        shuffled = [generator.permutation(members) for _ in range(rounds)]
        return np.concatenate(shuffled)[: self.images_per_class]
