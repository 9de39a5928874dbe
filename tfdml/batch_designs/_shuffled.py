"""Draw shuffled batches, for losses that need no pairs in a batch."""

import numpy as np

from tfdml._core.arguments import whole
from tfdml.batch_designs._design import BatchDesign


class ShuffledBatches(BatchDesign):
    """Batches of images in random order, for losses over proxies.

    A pass shows every image once; leftover images that do not fill a batch wait for
    another pass. Classes play no role: their size and number do not matter, and the
    number of images of a class in a batch is random. Every pair of two different images
    is equally likely to share a batch, so its importance weight is 1.

    Args:
        images: Number of images N, at least 1.
        batch_size: Number of images in a batch, from 1 to N.
        seed: Seed, at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> design = ShuffledBatches(7, 3)
        >>> len(design), len(set(design.batches(0).ravel().tolist()))
        (2, 6)

    Reference:
        Kim, Kim, Cho and Kwak, Proxy Anchor Loss for Deep Metric Learning, CVPR 2020,
        section 4: batches of random images.
    """

    def __init__(self, images: int, batch_size: int, *, seed: int = 0) -> None:
        super().__init__(whole("images", images), seed)
        self._batch_size = whole("batch_size", batch_size)
        if self._batch_size > self.images:
            raise ValueError(
                f"`batch_size` must be at most the number of images, {images}. "
                f"Received: batch_size={batch_size}."
            )

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return self.images // self.batch_size

    @property
    def batch_size(self) -> int:
        """Number of images in a batch."""
        return self._batch_size

    def draw_pass(self, generator: np.random.Generator) -> np.ndarray:
        """Draw all batches of a pass."""
        used = len(self) * self.batch_size
        return generator.permutation(self.images)[:used].reshape(-1, self.batch_size)
