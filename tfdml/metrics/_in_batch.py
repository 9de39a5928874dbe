"""Measure each batch in `compile`: retrieval, and misplaced pairs of a loss."""

from abc import abstractmethod
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import whole
from tfdml._core.batches import (
    are_class_ids,
    checked_batch,
    checked_labels,
    is_traced,
    refuse_mask,
)
from tfdml._core.marks import is_building, refuse_marks
from tfdml._core.no_positives import warn_of_no_positives
from tfdml._core.tensors import Tensor, same_labels, wide
from tfdml.losses import TopKPrecisionLoss
from tfdml.ops import cosine_similarities, label_masks


class _BatchRetrieval(keras.metrics.Mean):
    """The mean over the queries of batches, each of which searches its own batch.

    Every item of a batch searches the others by cosine similarity, computed in float32,
    or in float64 for a metric of that type. The item itself is left out by its
    position; equal similarities come in the order of the batch, as far as the backend
    rounds them alike; an embedding of zeros has the similarity 0 with all others. An
    item without a positive in its batch is not a query: it is searched, but has the
    weight 0. Without any query the result is 0. An embedding with a NaN or an infinity
    makes the result NaN.

    Each update sorts one B x B matrix and takes the memory of a few.
    """

    def __init__(self, name: str, dtype: str | None) -> None:
        super().__init__(name=name, dtype=dtype)
        self._direction = "up"  # Keras' callbacks read it for mode="auto".
        self._is_updated = self._has_looked = False

    def result(self) -> Tensor:
        """Return the mean, and warn once if no batch held a query."""
        self._look_for_queries()
        return super().result()

    def _look_for_queries(self) -> None:
        if self._has_looked or not self._is_updated or is_building():
            return
        count = self.count + 0  # a tensor, also where Keras holds a variable
        if is_traced(count):
            return
        self._has_looked = True
        if not float(count):
            warn_of_no_positives(f"`{self.name}`: the batches so far hold")

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Add the queries of a batch.

        Args:
            y_true: Integer labels `[B]` or `[B, 1]`.
            y_pred: Embeddings `[B, dimension]`.
            sample_weight: Optional weight of each query, `[B]`, `[B, 1]` or a number.
                An item of weight 0 is still searched.

        Raises:
            ValueError: The shapes do not fit, a label is not a whole number, or the
                embeddings carry a mask.
        """
        self._is_updated |= not is_building()
        refuse_mask(y_pred)
        refuse_marks(y_pred)
        embeddings = ops.convert_to_tensor(y_pred, dtype=wide(self.dtype))
        if len(embeddings.shape) != 2:
            raise ValueError(
                "The embeddings (`y_pred`) must have the shape [batch, dimension]. "
                f"Received: shape={tuple(embeddings.shape)}."
            )
        labels = checked_labels(y_true, embeddings.shape[0])
        relevant, positives = _ranked_relevance(labels, embeddings)
        values = self._values(relevant, positives)
        # A comparison with a NaN ranks it somewhere.
        whole_rows = ops.all(ops.isfinite(embeddings), axis=1)
        whole_rows = ops.logical_and(whole_rows, are_class_ids(labels))
        values = ops.where(whole_rows, values, float("nan"))
        # What is not finite counts in any case: NaN times 0 may be left out.
        counts = ops.logical_or(positives > 0, ops.logical_not(whole_rows))
        weights = ops.cast(counts, self.dtype)
        if sample_weight is not None:
            weights = weights * self._checked_weight(sample_weight, labels.shape[0])
        super().update_state(values, sample_weight=weights)

    def _checked_weight(self, sample_weight: Tensor, rows: int | None) -> Tensor:
        weight = ops.convert_to_tensor(sample_weight, dtype=self.dtype)
        shape = tuple(weight.shape)
        if shape[1:] == (1,):
            weight = ops.squeeze(weight, axis=1)
        if shape[1:] not in ((), (1,)) or (
            shape and None not in (shape[0], rows) and shape[0] != rows
        ):
            raise ValueError(
                "`sample_weight` must be one number per row, of shape [batch] or "
                f"[batch, 1], or a single one. Received: shape={shape} for {rows} rows."
            )
        return weight

    @abstractmethod
    def _values(self, relevant: Tensor, positives: Tensor) -> Tensor:
        """Compute the value of each query, `[B]`, finite also without a positive.

        Args:
            relevant: Float tensor `[B, B]`: 1 where the item of that rank is a positive
                of the row's query, else 0. The query itself comes last, with 0.
            positives: Float tensor `[B]`: the number of positives of each query.
        """


@keras.saving.register_keras_serializable(package="tfdml")
class PrecisionAtK(_BatchRetrieval):
    """Precision@k within each batch: the share of positives among the first k.

    sum_{i<=k} rel(i) / k, where rel(i) = 1 if rank i is a positive of the query. The
    divisor is k even if the query has fewer than k positives, or the batch fewer than
    k other items. The result is the mean over all queries of all batches.

    It measures the batches that the model is trained on, in which few items could be
    confused with a query. So it is far higher than on the whole set, and it depends on
    the batch design. For retrieval on held-out classes, use
    `tfdml.metrics.RetrievalEvaluation`.

    Every item of a batch is a query among the others, by cosine similarity. The query
    itself is left out by its position, and ties keep the order of the batch. An item
    without a positive in its batch does not count; if no item counts, the result is 0.
    An embedding that is not finite makes the result NaN.

    Args:
        k: How many of the first items count, at least 1.
        name: Name of the metric. Defaults to `"batch_precision_at_{k}"`, which leaves
            `"precision_at_{k}"` to `RetrievalEvaluation`.
        dtype: Type that the mean is computed in. Defaults to `keras.config.floatx()`.

    Raises:
        ValueError: `k` is out of range.

    Example:
        >>> metric = PrecisionAtK(k=2)
        >>> metric.update_state([7, 7, 9], [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
        >>> float(metric.result())
        0.5
    """

    def __init__(
        self, k: int = 1, *, name: str | None = None, dtype: str | None = None
    ) -> None:
        self.k: int = whole("k", k)
        super().__init__(name or f"batch_precision_at_{self.k}", dtype)

    def _values(self, relevant: Tensor, positives: Tensor) -> Tensor:
        return ops.sum(relevant[:, : self.k], axis=1) / self.k

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable(package="tfdml")
class RecallAtK(_BatchRetrieval):
    """Recall@k within each batch: whether the first k contain a positive.

    1 if they do, else 0: the Recall@k of the metric learning papers, not the share
    of positives found. The result is the mean over all queries of all batches. If the
    batch has fewer than k other items, all of them count.

    It measures the batches that the model is trained on, not the held-out set, and
    treats ties and items without a positive as `PrecisionAtK` does. For retrieval on
    held-out classes use `tfdml.metrics.RetrievalEvaluation`.

    Args:
        k: How many of the first items count, at least 1.
        name: Name of the metric. Defaults to `"batch_recall_at_{k}"`.
        dtype: Type that the mean is computed in. Defaults to `keras.config.floatx()`.

    Raises:
        ValueError: `k` is out of range.

    Example:
        >>> metric = RecallAtK(k=2)
        >>> metric.update_state([7, 7, 9], [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
        >>> float(metric.result())
        1.0
    """

    def __init__(
        self, k: int = 1, *, name: str | None = None, dtype: str | None = None
    ) -> None:
        self.k: int = whole("k", k)
        super().__init__(name or f"batch_recall_at_{self.k}", dtype)

    def _values(self, relevant: Tensor, positives: Tensor) -> Tensor:
        return ops.max(relevant[:, : self.k], axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable(package="tfdml")
class RPrecision(_BatchRetrieval):
    """R-precision within each batch: the share of positives among the first R.

    (1/R) sum_{i<=R} rel(i), where R is the number of positives of the query in the
    batch and rel(i) = 1 if rank i is one of them. The mean over all queries of all
    batches.

    It measures the batches that the model is trained on, not the held-out set, and
    treats ties and items without a positive as `PrecisionAtK` does. For retrieval on
    held-out classes use `tfdml.metrics.RetrievalEvaluation`.

    Args:
        name: Name of the metric.
        dtype: Type that the mean is computed in. Defaults to `keras.config.floatx()`.

    Example:
        >>> metric = RPrecision()
        >>> metric.update_state([7, 7, 9], [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
        >>> float(metric.result())
        0.5

    Reference:
        Musgrave, Belongie and Lim, A Metric Learning Reality Check, ECCV 2020.
    """

    def __init__(
        self, *, name: str = "batch_r_precision", dtype: str | None = None
    ) -> None:
        super().__init__(name, dtype)

    def _values(self, relevant: Tensor, positives: Tensor) -> Tensor:
        return _mean_over_positives(_within_r(relevant, positives), positives)


@keras.saving.register_keras_serializable(package="tfdml")
class MeanAveragePrecisionAtR(_BatchRetrieval):
    """MAP@R within each batch: average precision over the first R.

    (1/R) sum_{i<=R} rel(i) * (precision at i), where R is the number of positives of
    the query in the batch and rel(i) = 1 if rank i is one of them. The mean over all
    queries of all batches.

    It measures the batches that the model is trained on, not the held-out set, and
    treats ties and items without a positive as `PrecisionAtK` does. For retrieval on
    held-out classes use `tfdml.metrics.RetrievalEvaluation`.

    Args:
        name: Name of the metric.
        dtype: Type that the mean is computed in. Defaults to `keras.config.floatx()`.

    Example:
        >>> metric = MeanAveragePrecisionAtR()
        >>> metric.update_state([7, 7, 9], [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
        >>> float(metric.result())
        0.5

    Reference:
        Musgrave, Belongie and Lim, A Metric Learning Reality Check, ECCV 2020.
    """

    def __init__(
        self, *, name: str = "batch_map_at_r", dtype: str | None = None
    ) -> None:
        super().__init__(name, dtype)

    def _values(self, relevant: Tensor, positives: Tensor) -> Tensor:
        found = _within_r(relevant, positives) * _precision_at_each_rank(relevant)
        return _mean_over_positives(found, positives)


@keras.saving.register_keras_serializable(package="tfdml")
class MeanAveragePrecision(_BatchRetrieval):
    """Mean average precision within each batch, over the full ranking.

    (1/R) sum_i rel(i) * (precision at i), where R is the number of positives of the
    query in the batch and rel(i) = 1 if rank i is one of them: 1 minus what
    `FastAPLoss` and `SmoothAPLoss` approximate. The mean over all queries of all
    batches.

    It measures the batches that the model is trained on, not the held-out set, and
    treats ties and items without a positive as `PrecisionAtK` does. For retrieval on
    held-out classes use `tfdml.metrics.RetrievalEvaluation`.

    Args:
        name: Name of the metric.
        dtype: Type that the mean is computed in. Defaults to `keras.config.floatx()`.

    Example:
        >>> metric = MeanAveragePrecision()
        >>> metric.update_state([7, 7, 9], [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
        >>> float(metric.result())  # (1 + 1/2) / 2
        0.75
    """

    def __init__(
        self, *, name: str = "batch_mean_average_precision", dtype: str | None = None
    ) -> None:
        super().__init__(name, dtype)

    def _values(self, relevant: Tensor, positives: Tensor) -> Tensor:
        found = relevant * _precision_at_each_rank(relevant)
        return _mean_over_positives(found, positives)


@keras.saving.register_keras_serializable(package="tfdml")
class MisplacedPairs(keras.metrics.Mean):
    """Mean number of misplaced pairs per anchor, |P| = |N| of the top-k loss.

    It counts the pairs that still move the embedding: the triplets of Figure 4 of Lu et
    al., ICCV 2019, of each anchor.

    Args:
        k: As in `TopKPrecisionLoss`.
        margin: As in `TopKPrecisionLoss`.
        name: Name of the metric.
        dtype: Type of the computation.

    Example:
        `model.compile(loss=TopKPrecisionLoss(k=5), metrics=[MisplacedPairs(k=5)])`
    """

    def __init__(
        self,
        k: int = 5,
        margin: float = 0.1,
        *,
        name: str = "misplaced_pairs",
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"
        self._loss = TopKPrecisionLoss(k, margin=margin)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Add the anchors of a batch: labels `[B]` or `[B, 1]`, embeddings `[B, D]`."""
        refuse_marks(y_pred)
        labels, embeddings = checked_batch(y_true, y_pred, self._loss.dtype)
        scores = cosine_similarities(embeddings, embeddings)
        counts = self._loss.misplaced_pairs(scores, *label_masks(labels))
        super().update_state(counts, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        loss = self._loss
        return {
            "name": self.name,
            "dtype": self.dtype,
            "k": loss.k,
            "margin": loss.margin,
        }


def _ranked_relevance(labels: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Rank the other items for each item.

    Returns:
        Float tensor `[B, B]`: 1 where the item of that rank is a positive of the row's
        item, else 0. Float tensor `[B]`: the number of positives.
    """
    scores = cosine_similarities(embeddings, embeddings)
    positives, _ = label_masks(labels)
    position = ops.arange(ops.shape(labels)[0], dtype="int32")
    # XLA sorts -0.0 before 0.0, which are a tie.
    distances = ops.where(ops.equal(scores, 0), 0.0, -scores)
    distances = ops.where(same_labels(position, position), float("inf"), distances)
    # Stable on every backend of Keras 3.15: ties stay in the order of the batch.
    order = ops.argsort(distances, axis=1)
    relevant = ops.cast(ops.take_along_axis(positives, order, axis=1), scores.dtype)
    return relevant, ops.sum(relevant, axis=1)


def _ranks(relevant: Tensor) -> Tensor:
    count = ops.shape(relevant)[1]
    return ops.cast(ops.expand_dims(ops.arange(count) + 1, 0), relevant.dtype)


def _within_r(relevant: Tensor, positives: Tensor) -> Tensor:
    first = _ranks(relevant) <= ops.expand_dims(positives, 1)
    return ops.where(first, relevant, 0.0)


def _precision_at_each_rank(relevant: Tensor) -> Tensor:
    return ops.cumsum(relevant, axis=1) / _ranks(relevant)


def _mean_over_positives(found: Tensor, positives: Tensor) -> Tensor:
    return ops.sum(found, axis=1) / ops.maximum(positives, 1)
