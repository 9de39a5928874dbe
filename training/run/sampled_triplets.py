"""Count the triplets that training has seen, to compare batch designs by them."""

from typing import Any

import keras
import numpy as np

from training.run.batches import ImageBatches
from training.run.progress import Progress


def triplets_of(labels: np.ndarray) -> int:
    """Count the triplets of a batch, sum over classes c of n_c (n_c - 1) (B - n_c).

    A triplet is an anchor, a positive and a negative, as in Figure 4 of Lu et al.,
    ICCV 2019, whatever the loss makes of it.

    Args:
        labels: Class ids, integers `[B]`.

    Example:
        >>> triplets_of(np.array([0, 0, 1]))
        2
    """
    counts = np.unique(labels, return_counts=True)[1]
    return int((counts * (counts - 1) * (len(labels) - counts)).sum())


class SampledTriplets(keras.callbacks.Callback):
    """Add `triplets` to the logs of each epoch: all that the run has sampled so far.

    Args:
        batches: The training batches.
        labels: Class of each training image, integers `[N]`.
        progress: What remembers the count of the epochs before.
    """

    def __init__(
        self, batches: ImageBatches, labels: np.ndarray, progress: Progress
    ) -> None:
        super().__init__()
        self._batches = batches
        self._labels = labels
        self._progress = progress

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the batches of the epoch."""
        done = self._progress.history.get("triplets", [])
        steps = len(self._batches)
        # A run that began before they were counted is counted from its beginning.
        before, first = (done[-1], epoch) if 0 < len(done) == epoch else (0, 0)
        seen = sum(
            triplets_of(self._labels[self._batches.positions(step)])
            for step in range(first * steps, (epoch + 1) * steps)
        )
        if logs is not None:
            logs["triplets"] = before + seen
