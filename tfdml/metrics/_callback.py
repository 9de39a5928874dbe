"""Measure retrieval at the end of each epoch of `fit`."""

from collections.abc import Sequence
from typing import Any, get_args

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import one_of, whole
from tfdml._core.labels import as_role
from tfdml._core.no_positives import warn_of_no_positives
from tfdml.metrics._comparisons import Comparisons, checked_ks
from tfdml.metrics._held_out import HeldOutItems
from tfdml.metrics._results import Average, WithoutPositive
from tfdml.metrics._retrieval import retrieval_metrics
from tfdml.neighbors import Metric


class RetrievalEvaluation(keras.callbacks.Callback):
    """Measure exact retrieval on held-out classes at the end of each epoch.

    The metrics of `retrieval_metrics` go into the logs of the epoch under
    `prefix`, where `ModelCheckpoint`, `EarlyStopping` and the history find them. Put
    this callback before those, and give them `mode="max"`: for all these metrics,
    higher is better, which Keras cannot know. It searches the embeddings themselves,
    without an index.

    Args:
        images: What the model's `predict` takes, N items: an array-like, a dict, tuple
            or list of them for a model with several inputs, or a `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a `DataLoader` of batches, which must end.
        labels: Classes `[N]`, integers or strings, none of them a class of the training
            set. `None` for a data set of (x, y), where y are the labels and the order
            may change. A data set of only x must keep its order.
        ks: The k of Precision@k and Recall@k.
        is_query: Bool array `[N]`: which items are searched with. `None`: all.
        is_gallery: Bool array `[N]`: which items are searched. `None`: all.
        groups: Integers or strings `[N]`: items of the query's own group, such as its
            clip, are left out. `None`: only the query is.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        average: `"micro"` or `"macro"`, as in `retrieval_metrics`.
        without_positive: `"skip"` or `"zero"`, as in `retrieval_metrics`.
        batch_size: Batch size of `predict`.
        prefix: Put before the name of each metric.
        embedder: Model that embeds the images. Defaults to the model that is trained,
            without a last layer `Proxies` or `ClassBoundaries`. A model with several
            outputs needs it.

    Attributes:
        queries: The number of queries with a positive; 0 before a data set that holds
            the labels has been read.
        queries_without_positive: The number of queries without one.

    Raises:
        ValueError: As `retrieval_metrics`; for all but the embeddings before training
            begins.

    Example:
        `fit(..., callbacks=[RetrievalEvaluation(images, labels),
        keras.callbacks.EarlyStopping("val_precision_at_1", mode="max")])`
    """

    def __init__(
        self,
        images: Any,
        labels: ArrayLike | None = None,
        *,
        ks: Sequence[int] = (1, 5),
        is_query: ArrayLike | None = None,
        is_gallery: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        metric: Metric = "cosine",
        average: Average = "micro",
        without_positive: WithoutPositive = "skip",
        batch_size: int = 64,
        prefix: str = "val_",
        embedder: keras.Model | None = None,
    ) -> None:
        super().__init__()
        self._items = HeldOutItems(images, labels)
        self._is_query, self._is_gallery = is_query, is_gallery
        self._groups = groups
        self._ks = checked_ks(ks)
        self.queries = self.queries_without_positive = 0
        if self._items.labels is not None:
            compared = self._compared(self._items.labels)
            self._ks = compared.checked_ks(ks)
            self.queries = int(compared.has_positive.sum())
            self.queries_without_positive = len(compared.queries) - self.queries
        self._metric = one_of("metric", metric, get_args(Metric))
        self._average = one_of("average", average, get_args(Average))
        self._without_positive = one_of(
            "without_positive", without_positive, get_args(WithoutPositive)
        )
        self._batch_size = whole("batch_size", batch_size)
        self._prefix = prefix
        self._embedder = embedder
        self._found: keras.Model | None = None
        self._order: NDArray[Any] | None = None
        self._has_looked = False

    def set_model(self, model: keras.Model) -> None:
        """Forget what was found out about another model."""
        super().set_model(model)
        self._found = None

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Find the embedder, and refuse what cannot be measured before it trains."""
        self._found = self._items.embedder_of(self._embedder or self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Embed the held-out images and add the metrics to the logs."""
        if self._found is None:
            self.on_train_begin()
        embeddings, labels = self._items.embed(self._found, self._batch_size)
        self._check_order(labels)
        measured = retrieval_metrics(
            embeddings,
            labels,
            self._ks,
            is_query=self._is_query,
            is_gallery=self._is_gallery,
            groups=self._groups,
            metric=self._metric,
            average=self._average,
            without_positive=self._without_positive,
        )
        self.queries = int(measured["queries"])
        self.queries_without_positive = int(measured["queries_without_positive"])
        self._look_at_loss(logs or {})
        if logs is not None:
            for name, value in measured.items():
                if not name.startswith("queries"):
                    logs[self._prefix + name] = value

    def _look_at_loss(self, logs: dict[str, float]) -> None:
        """Warn once if each batch of the epoch had a loss of exactly 0."""
        loss = getattr(self.model, "loss", None)
        if self._has_looked or not getattr(loss, "needs_positives", False):
            return
        self._has_looked = True
        if logs.get("loss") == 0:
            warn_of_no_positives("The loss of the epoch is 0: its batches hold")

    def _compared(self, labels: NDArray[Any]) -> Comparisons:
        count = len(labels)
        self._is_query = as_role("is_query", self._is_query, count)
        self._is_gallery = as_role("is_gallery", self._is_gallery, count)
        compared = Comparisons(
            count,
            labels,
            is_query=self._is_query,
            is_gallery=self._is_gallery,
            groups=self._groups,
        )
        self._groups = compared.groups
        return compared

    def _check_order(self, labels: NDArray[Any]) -> None:
        """Refuse roles and groups by place where the places change."""
        by_place = (self._is_query, self._is_gallery, self._groups)
        if all(role is None for role in by_place):
            return
        if self._order is not None and not np.array_equal(self._order, labels):
            raise ValueError(
                "`images` must come in one order with `is_query`, `is_gallery` or "
                "`groups`, which name them by place: do not shuffle. Received: another "
                "order of labels than in the epoch before."
            )
        self._order = labels
