"""Draw N-pair batches of classes that the network finds hard to tell apart."""

from typing import Any

import numpy as np

from tfdml.batch_designs import NPairBatches, class_means

from .mining import MinedEpochs, Mining


class HardClassEpochs(MinedEpochs):
    """N-pair batches that are drawn anew at each epoch, with its class embeddings."""

    _design: NPairBatches

    def take(self, epoch: int, found: Any) -> None:
        """Mine with the class embeddings of an epoch."""
        self._design.class_embeddings = found


class HardClassMining(Mining):
    """Embed two images of each training class before each epoch."""

    images_per_class = 2  # all would take as long as an epoch

    def found(self, embeddings: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the class embeddings."""
        return class_means(embeddings, labels)
