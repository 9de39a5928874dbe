"""Draw batches of whole classes, up to a number of images per class."""

from collections import deque

import numpy as np

from tfdml._core.arguments import whole
from tfdml.batch_designs._design import BatchDesign, Labels, find_classes


class CappedClassBatches(BatchDesign):
    """Draw batches of a fixed size, with a maximum number of images per class.

    Classes are taken in random order. Each contributes `images_per_class` different
    images, or all that it has, until the batch is full; the last one contributes as
    many as fit. When all classes have had a turn, they are shuffled again, and those
    in the unfinished batch come last. So a class has one turn in a batch, no image
    occurs twice in a batch, and all classes have the same number of turns in a pass,
    give or take one.

    A class with fewer images than `images_per_class` contributes those that it has,
    without repeats; a class of one image only serves as a negative. There may also be
    room for only a few images of the last class of a batch: `batch_size` = 64 with 11
    images per class leaves 9 places for it.

    A pass is `N // batch_size` batches, at least 1: as many as it takes to show every
    image once, although the images of a class are drawn at random.

    Args:
        labels: Class of each image, integers or strings, `[N]`.
        batch_size: Number of images in a batch, at least 1 and at most what all classes
            give.
        images_per_class: The maximum number of images of a class in a batch, at least
            1. For queries with n+ positives, choose n+ + 1.
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> design = CappedClassBatches([0] * 9 + [1] * 9, 5, 3)
        >>> labels = design.batches(0)[0] // 9
        >>> sorted(np.bincount(labels).tolist())
        [2, 3]

    Reference:
        Lu, Xu, Zhang, Duan and Mei, Sampling Wisely: Deep Image Embedding by Top-k
        Precision Optimization, ICCV 2019, section 4: 64 images, at most 11 of a class.
        Their code draws the classes of each batch independently, so some come rarely.
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int = 64,
        images_per_class: int = 11,
        *,
        seed: int = 0,
    ) -> None:
        classes = find_classes(labels)
        super().__init__(int(classes.counts.sum()), seed)
        self.images_per_class: int = whole("images_per_class", images_per_class)
        self._batch_size = whole("batch_size", batch_size)
        self._members = classes.members
        room = int(np.minimum(classes.counts, self.images_per_class).sum())
        if self._batch_size > room:
            raise ValueError(
                f"`batch_size` must be at most {room}, what {len(self._members)} "
                f"classes give with images_per_class={images_per_class}. Received: "
                f"batch_size={batch_size}."
            )

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return max(self.images // self.batch_size, 1)

    @property
    def batch_size(self) -> int:
        """Number of images in a batch."""
        return self._batch_size

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass; the images of a class stand together."""
        queue: deque[int] = deque()
        return np.stack([self._draw(queue, generator) for _ in range(len(self))])

    def _draw(self, queue: deque[int], generator: np.random.Generator) -> np.ndarray:
        chosen: list[np.ndarray] = []
        used: set[int] = set()
        room = self.batch_size
        while room:
            if not queue:
                order = generator.permutation(len(self._members)).tolist()
                # The sort is stable: those not in this batch first, in random order.
                queue.extend(sorted(order, key=used.__contains__))
            used.add(queue[0])
            images = generator.permutation(self._members[queue.popleft()])
            chosen.append(images[: min(self.images_per_class, room)])
            room -= len(chosen[-1])
        return np.concatenate(chosen)
