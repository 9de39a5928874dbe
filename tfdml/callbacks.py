"""Callbacks for `fit`."""

from collections.abc import Sequence

import keras
import numpy as np

from tfdml.metrics import retrieval_metrics

__all__ = ["RetrievalEvaluation"]


class RetrievalEvaluation(keras.callbacks.Callback):
    """Measure exact retrieval on held-out classes at the end of each epoch.

    The metrics of `retrieval_metrics` go into the logs of the epoch under
    `prefix`, where `ModelCheckpoint`, `EarlyStopping` and the history find them: put
    this callback before those. It searches the embeddings themselves: no index of
    anybody's is touched.

    Args:
        images: Whatever the model's `predict` takes, N items.
        labels: Integer classes, `[N]`; no class of the training set.
        ks: The k of Precision@k and Recall@k.
        is_query: Bool array `[N]`: which items are searched with. `None`: all.
        is_gallery: Bool array `[N]`: which items are searched. `None`: all.
        groups: Integers or strings `[N]`: items of the query's own group, such as its
            clip, are left out. `None`: the query alone is.
        batch_size: Batch size of `predict`.
        prefix: Put before the name of each metric.
        embedder: Model that embeds the images. Defaults to the model that is trained;
            with a proxy loss, give the part of it that ends in the embeddings.

    Raises:
        ValueError: `ks` is out of range.

    Example:
        `fit(..., callbacks=[RetrievalEvaluation(images, labels),
        keras.callbacks.EarlyStopping("val_precision_at_1", mode="max")])`
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        *,
        ks: Sequence[int] = (1, 5),
        is_query: np.ndarray | None = None,
        is_gallery: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        batch_size: int = 64,
        prefix: str = "val_",
        embedder: keras.Model | None = None,
    ) -> None:
        super().__init__()
        self._images = images
        self._labels = np.asarray(labels)
        self._ks = tuple(ks)
        if not self._ks or not 1 <= min(self._ks) <= max(self._ks) < len(self._labels):
            raise ValueError(
                f"`ks` must be from 1 to {len(self._labels) - 1}, the number of items "
                f"less the query. Received: {list(ks)}."
            )
        self._is_query, self._is_gallery, self._groups = is_query, is_gallery, groups
        self._batch_size = batch_size
        self._prefix = prefix
        self._embedder = embedder

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Embed the held-out images and add the metrics to the logs."""
        embedder = self._embedder or self.model
        embeddings = embedder.predict(
            self._images, batch_size=self._batch_size, verbose=0
        )
        measured = retrieval_metrics(
            embeddings,
            self._labels,
            self._ks,
            is_query=self._is_query,
            is_gallery=self._is_gallery,
            groups=self._groups,
        )
        if logs is not None:
            for name, value in measured.items():
                if not name.startswith("queries"):
                    logs[self._prefix + name] = value
