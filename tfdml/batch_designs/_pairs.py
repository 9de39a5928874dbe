"""Draw batches of pairs that are positive with a given probability."""

import numpy as np

from tfdml._core.arguments import whole
from tfdml.batch_designs._design import BatchDesign, Labels, find_classes
from tfdml.batch_designs._importance import random_pair_importance


class PairBatches(BatchDesign):
    """The p-random design: pairs, drawn one by one, positive with probability p.

    A positive pair is two different images of a class; a negative pair is one image
    from each of two different classes. Every class, every two classes and every image
    of a class are equally likely:

        positive (i, j):  p / (L N_c (N_c - 1))
        negative (i, j):  (1 - p) / (L (L - 1) N_c N_d)

    with L classes and N_c images of class c. A class of one image is not used. Rows 2t
    and 2t + 1 of a batch are pair t, in random order. Pairs are drawn independently of
    each other, so an image may be in several pairs of a batch. A pass is as many
    batches as it takes to show the images of the used classes once, at least 1,
    although some occur more than once, and others not at all.

    A loss must compare only the two rows of a pair, as
    `WeightedContrastiveLoss(..., positive_probability=p)` does.

    Args:
        labels: Class of each image, integers or strings, `[N]`.
        pairs_per_batch: Number of pairs in a batch, at least 1.
        positive_probability: p, from 0 to 1. (The paper calls it a ratio of positive to
            negative pairs, but uses it as this probability.)
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range, or there are fewer than 2 classes of 2
            images (1 with p = 1).

    Example:
        >>> design = PairBatches([7, 7, 7, 7], 3, positive_probability=1.0)
        >>> design.batches(0).shape
        (1, 6)

    Reference:
        Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss, section
        4.1 and Eq. 8. Their code draws a class in proportion to its images, and pairs
        of a batch without replacement.
    """

    def __init__(
        self,
        labels: Labels,
        pairs_per_batch: int,
        *,
        positive_probability: float = 0.5,
        seed: int = 0,
    ) -> None:
        classes = find_classes(labels)
        super().__init__(int(classes.counts.sum()), seed)
        self.pairs_per_batch: int = whole("pairs_per_batch", pairs_per_batch)
        self._counts = classes.counts
        self.positive_probability: float = positive_probability
        random_pair_importance(self._counts, positive_probability)  # refuses a wrong p
        members = classes.at_least(2)
        if len(members) < (1 if positive_probability == 1 else 2):
            needed = "1 class" if positive_probability == 1 else "2 classes"
            raise ValueError(
                f"`labels` must have at least {needed} of 2 images or more. "
                f"Received: {len(members)}."
            )
        self._sizes = np.array([len(images) for images in members])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._positions = np.concatenate(members)

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return max(len(self._positions) // self.batch_size, 1)

    @property
    def batch_size(self) -> int:
        """Number of images in a batch, two a pair."""
        return 2 * self.pairs_per_batch

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass; rows 2t and 2t + 1 of a batch are a pair."""
        count = len(self) * self.pairs_per_batch
        classes = len(self._sizes)
        positive = generator.random(count) < self.positive_probability
        first = generator.integers(classes, size=count)
        # Of the other classes; with one class all pairs are positive.
        step = 1 + generator.integers(max(classes - 1, 1), size=count)
        second = np.where(positive, first, (first + step) % classes)
        sizes = self._sizes[first]
        image = generator.integers(sizes)
        # The other of a positive pair is one of the images that are left.
        other = generator.integers(np.where(positive, sizes - 1, self._sizes[second]))
        other += positive & (other >= image)
        chosen = np.stack(
            [self._starts[first] + image, self._starts[second] + other], 1
        )
        return self._positions[chosen].reshape(len(self), self.batch_size)

    def importance_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Compute the weights that undo what the design favors (Eqs. 8 and 24).

        Returns:
            Two float64 arrays `[C]` over the classes in ascending order of their
            labels, as `tfdml.batch_designs.random_pair_importance` returns them; 0 for
            classes of one image.
        """
        return random_pair_importance(self._counts, self.positive_probability)
