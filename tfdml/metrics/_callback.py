"""Measure retrieval at the end of each epoch of `fit`."""

from collections.abc import Sequence
from typing import get_args

import keras
import numpy as np

from tfdml._arguments import one_of
from tfdml._labels import as_labels, as_role
from tfdml.metrics._comparisons import Comparisons
from tfdml.metrics._results import Average, WithoutPositive
from tfdml.metrics._retrieval import retrieval_metrics
from tfdml.neighbors import Metric


class RetrievalEvaluation(keras.callbacks.Callback):
    """Measure exact retrieval on held-out classes at the end of each epoch.

    The metrics of `retrieval_metrics` go into the logs of the epoch under
    `prefix`, where `ModelCheckpoint`, `EarlyStopping` and the history find them: put
    this callback before those. It searches the embeddings themselves, without an
    index.

    Args:
        images: Anything that the model's `predict` takes, N items.
        labels: Integer classes, `[N]`, none of them a class of the training set.
        ks: The k of Precision@k and Recall@k.
        is_query: Bool array `[N]`: which items are searched with. `None`: all.
        is_gallery: Bool array `[N]`: which items are searched. `None`: all.
        groups: Integers or strings `[N]`: items of the query's own group, such as its
            clip, are left out. `None`: the query alone is.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        average: `"micro"` or `"macro"`, as in `retrieval_metrics`.
        without_positive: `"skip"` or `"zero"`, as in `retrieval_metrics`.
        batch_size: Batch size of `predict`.
        prefix: Put before the name of each metric.
        embedder: Model that embeds the images. Defaults to the model that is trained;
            with a proxy loss, give the part of it that ends in the embeddings.

    Attributes:
        queries: The number of queries with a positive.
        queries_without_positive: The number of queries without one.

    Raises:
        ValueError: As `retrieval_metrics`, for all but the embeddings.

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
        metric: Metric = "cosine",
        average: Average = "micro",
        without_positive: WithoutPositive = "skip",
        batch_size: int = 64,
        prefix: str = "val_",
        embedder: keras.Model | None = None,
    ) -> None:
        super().__init__()
        self._images = images
        self._labels = as_labels("labels", labels)
        count = len(self._labels)
        if hasattr(images, "__len__") and len(images) != count:
            raise ValueError(
                f"`labels` must have one entry for each of the {len(images)} images. "
                f"Received: {count}."
            )
        self._is_query = as_role("is_query", is_query, count)
        self._is_gallery = as_role("is_gallery", is_gallery, count)
        compared = Comparisons(
            count,
            self._labels,
            is_query=self._is_query,
            is_gallery=self._is_gallery,
            groups=groups,
        )
        self._groups = compared.groups
        self._ks = compared.checked_ks(ks)
        self.queries = int(compared.has_positive.sum())
        self.queries_without_positive = len(compared.queries) - self.queries
        self._metric = one_of("metric", metric, get_args(Metric))
        self._average = one_of("average", average, get_args(Average))
        self._without_positive = one_of(
            "without_positive", without_positive, get_args(WithoutPositive)
        )
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
            metric=self._metric,
            average=self._average,
            without_positive=self._without_positive,
        )
        if logs is not None:
            for name, value in measured.items():
                if not name.startswith("queries"):
                    logs[self._prefix + name] = value
