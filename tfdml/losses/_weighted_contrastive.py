"""Contrastive losses whose pairs weigh by the sizes of their classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml._arguments import above_zero, at_least_zero
from tfdml.batch_designs import balanced_eta, group_importance, random_pair_importance
from tfdml.losses._base import MetricLoss
from tfdml.ops import Tensor, euclidean_distances, is_traced, label_masks, unit_rows

ClassCounts = Mapping[int, int] | Sequence[int] | np.ndarray


@keras.saving.register_keras_serializable(package="tfdml")
class WeightedContrastiveLoss(MetricLoss):
    """Contrastive loss that weighs pairs as if all pairs of the data came alike.

    The (m, n)-group design, m images of each of n classes in a batch, draws the pairs
    of small classes far more often than others. With D the Euclidean distance, the
    loss is the mean over all ordered pairs (i, j) of the batch of

        W_ij^delta D_ij^2                 for positives
        W_ij^delta max(0, margin - D_ij)^2   for negatives

    where W is the chance of the pair among all pairs of the data set over its chance in
    the design (see `tfdml.batch_designs.group_importance`). With delta = 1 its
    expectation is the mean over all pairs of the data set, with delta = 0 it is
    `ContrastiveLoss`.

    A class with fewer than m images cannot be drawn in this design: W is 0 for its
    pairs. W needs both labels of a pair, so the loss needs a batch that is compared
    with itself. A label that is not in `class_counts` is refused; inside a compiled
    function, where values cannot be refused, the loss is then NaN.

    In the p-random design (`positive_probability`), rows 2t and 2t + 1 of the batch are
    pair t, as `tfdml.batch_designs.PairBatches` draws them. Then the loss is the mean
    over these pairs alone, i the first row, j the second, with the W of that design
    (see `tfdml.batch_designs.random_pair_importance`), which leaves out classes of one
    image. The value of a first row is twice that of its pair, that of a second row 0,
    so that the mean over the batch is the mean over the pairs.

    Args:
        class_counts: Number of training images of each class: a mapping from label to
            number, or a sequence with the number of label 0, 1, 2, ...
        images_per_class: m, at least 2. With `None`, W is 1.
        classes_per_batch: n, at least 2. Given if and only if m is.
        positive_probability: p, from 0 to 1, for batches of pairs of the p-random
            design. Not given if m and n are.
        margin: The distance that negatives should have, above 0.
        power: delta, at least 0. Between 0 and 1 weakens the weights.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = WeightedContrastiveLoss({7: 30, 9: 10}, 2, 2)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # W 3.346, 0.346, 0.577
        1.4231

    Reference:
        Hong, Choi and Han, Deep Metric Learning via Weighted Contrastive Loss, Eqs. 23
        and 25 and section 6.2.
    """

    def __init__(
        self,
        class_counts: ClassCounts,
        images_per_class: int | None = None,
        classes_per_batch: int | None = None,
        *,
        positive_probability: float | None = None,
        margin: float = 1.0,
        power: float = 1.0,
        normalize: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "weighted_contrastive_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self._labels, self._counts = _checked_counts(class_counts)
        self._is_mapping = isinstance(class_counts, Mapping)
        if (images_per_class is None) != (classes_per_batch is None):
            raise ValueError(
                "`images_per_class` and `classes_per_batch` describe one design: give "
                f"both or neither. Received: images_per_class={images_per_class}, "
                f"classes_per_batch={classes_per_batch}."
            )
        for argument, value in (
            ("images_per_class", images_per_class),
            ("classes_per_batch", classes_per_batch),
        ):
            if value is not None and value < 2:
                raise ValueError(
                    f"`{argument}` must be at least 2. Received: {argument}={value}."
                )
        if positive_probability is not None:
            if images_per_class is not None:
                raise ValueError(
                    "`positive_probability` describes another design than "
                    "`images_per_class` and `classes_per_batch`: give one. Received: "
                    f"positive_probability={positive_probability}, images_per_class="
                    f"{images_per_class}."
                )
            random_pair_importance(self._counts, positive_probability)  # refuses it
        self.positive_probability: float | None = positive_probability
        self.images_per_class: int | None = images_per_class
        self.classes_per_batch: int | None = classes_per_batch
        self.margin: float = above_zero("margin", margin)
        self.power: float = at_least_zero("power", power)
        self.normalize: bool = normalize

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the mean over the pairs of each anchor, `[B]`."""
        if self.normalize:
            embeddings = unit_rows(embeddings)
        if self.positive_probability is not None:
            return self._compare_pairs(labels, embeddings)
        positives, negatives = label_masks(labels)
        distances = euclidean_distances(embeddings, embeddings)
        weights = self._look_up(labels, self._class_weights(), distances.dtype)
        near = weights[:, 0:1] * ops.square(distances)
        far = ops.square(ops.relu(self.margin - distances))
        far = far * weights[:, 1:2] * ops.expand_dims(weights[:, 2], 0)
        values = ops.where(positives, near, ops.where(negatives, far, 0))
        others = ops.maximum(ops.shape(labels)[0] - 1, 1)
        return ops.sum(values, axis=1) / ops.cast(others, values.dtype)

    def _compare_pairs(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute twice the value of each pair at its first row, `[B]`."""
        if embeddings.shape[0] is not None and embeddings.shape[0] % 2:
            raise ValueError(
                "A batch of pairs must have an even number of rows. "
                f"Received: {embeddings.shape[0]}."
            )
        weights = self._look_up(labels, self._class_weights(), embeddings.dtype)
        squared = ops.sum(ops.square(embeddings[0::2] - embeddings[1::2]), axis=1)
        is_zero = ops.equal(squared, 0)  # where sqrt has an infinite gradient
        root = ops.sqrt(ops.where(is_zero, ops.ones_like(squared), squared))
        distances = ops.where(is_zero, ops.zeros_like(root), root)
        near = weights[0::2, 0] * squared
        far = ops.square(ops.relu(self.margin - distances))
        far = far * weights[0::2, 1] * weights[1::2, 2]
        values = 2 * ops.where(ops.equal(labels[0::2], labels[1::2]), near, far)
        return ops.reshape(ops.stack([values, ops.zeros_like(values)], 1), (-1,))

    def _smallest_class(self) -> int:
        """Number of images that a class must have for the design to draw it."""
        if self.positive_probability is not None:
            return 2
        return self.images_per_class or 1

    def _class_weights(self) -> np.ndarray:
        """Weights of each class, `[C, 3]`: positive, anchor, and item of a negative."""
        m, n, p = (
            self.images_per_class,
            self.classes_per_batch,
            self.positive_probability,
        )
        if p is not None:
            positive, negative = random_pair_importance(self._counts, p)
        elif m is not None and n is not None:
            positive, negative = group_importance(self._counts, m, n)
        else:
            return np.ones((len(self._counts), 3))
        used = self._counts >= self._smallest_class()  # 0^0 would be 1
        weights = np.stack([positive, negative, negative], axis=1) ** self.power
        return np.where(used[:, np.newaxis], weights, 0)

    def _look_up(self, labels: Tensor, table: np.ndarray, dtype: str) -> Tensor:
        """Take the row of each label from a table `[C, 3]`; NaN for unknown labels."""
        position, known = _positions(labels, self._labels)
        if not is_traced(known):
            missing = ops.convert_to_numpy(labels)[~ops.convert_to_numpy(known)]
            if len(missing):
                raise ValueError(
                    "`class_counts` must hold every label. "
                    f"Received: {missing[0]} in a batch, with counts of "
                    f"{len(self._labels)} classes."
                )
        rows = ops.take(ops.convert_to_tensor(table, dtype=dtype), position, axis=0)
        return ops.where(ops.expand_dims(known, 1), rows, float("nan"))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        counts: dict[int, int] | list[int] = self._counts.tolist()
        if self._is_mapping:
            counts = dict(
                zip(self._labels.tolist(), self._counts.tolist(), strict=True)
            )
        return {
            **super().get_config(),
            "class_counts": counts,
            "images_per_class": self.images_per_class,
            "classes_per_batch": self.classes_per_batch,
            "positive_probability": self.positive_probability,
            "margin": self.margin,
            "power": self.power,
            "normalize": self.normalize,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WeightedContrastiveLoss":
        """Make a loss from a configuration, also from one that was stored as JSON."""
        counts = config["class_counts"]
        if isinstance(counts, Mapping):  # JSON knows only keys of text
            counts = {int(label): count for label, count in counts.items()}
        return cls(**{**config, "class_counts": counts})


@keras.saving.register_keras_serializable(package="tfdml")
class BalancedContrastiveLoss(WeightedContrastiveLoss):
    """Balanced contrastive loss: the weighted one with eta on the negative pairs.

    For every anchor, the negatives of each other class weigh lambda / (L - 1) times as
    much as its positives, however large the classes are: the loss is the mean over all
    ordered pairs (i, j) of the batch of

        W_ij^delta D_ij^2                         for positives
        W_ij^delta eta_ij max(0, margin - D_ij)^2    for negatives

    with eta_ij = (lambda / (L - 1)) (N_yi - 1) / N_yj, L the number of classes that the
    design can draw (without a design: of classes with images) and N_c the number of
    images of class c. An anchor whose class has one image has eta = 0. Without a design
    W is 1. All else is as in `WeightedContrastiveLoss`.

    Args:
        class_counts: Number of training images of each class: a mapping from label to
            number, or a sequence with the number of label 0, 1, 2, ...
        images_per_class: m, at least 2. With `None`, W is 1.
        classes_per_batch: n, at least 2. Given if and only if m is.
        positive_probability: p, from 0 to 1, for batches of pairs of the p-random
            design. Not given if m and n are.
        balance: lambda, at least 0: how much the negatives of all other classes weigh
            against the positives.
        margin: The distance that negatives should have, above 0.
        power: delta, at least 0. It does not apply to eta.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = BalancedContrastiveLoss({7: 30, 9: 10}, balance=2.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # eta is 5.8 and 0.6
        1.7333

    Reference:
        Hong, Choi and Han, Deep Metric Learning via Weighted Contrastive Loss, Eqs. 16
        and 23.
    """

    def __init__(
        self,
        class_counts: ClassCounts,
        images_per_class: int | None = None,
        classes_per_batch: int | None = None,
        *,
        positive_probability: float | None = None,
        balance: float = 256.0,
        margin: float = 1.0,
        power: float = 1.0,
        normalize: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "balanced_contrastive_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            class_counts,
            images_per_class,
            classes_per_batch,
            positive_probability=positive_probability,
            margin=margin,
            power=power,
            normalize=normalize,
            reduction=reduction,
            name=name,
            dtype=dtype,
        )
        self.balance: float = at_least_zero("balance", balance)

    def _class_weights(self) -> np.ndarray:
        anchor, item = balanced_eta(self._counts, self.balance, self._smallest_class())
        eta = np.stack([np.ones_like(anchor), anchor, item], axis=1)
        return super()._class_weights() * eta

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "balance": self.balance}


def _checked_counts(class_counts: ClassCounts) -> tuple[np.ndarray, np.ndarray]:
    """Return labels in ascending order and their counts, both int64 `[C]`."""
    if isinstance(class_counts, Mapping):
        order = sorted(class_counts)
        labels = np.array(order)
        counts = np.array([class_counts[label] for label in order])
    else:
        counts = np.asarray(class_counts)
        labels = np.arange(len(counts)) if counts.ndim else np.zeros(0, "int64")
    for name, values in (("labels", labels), ("numbers", counts)):
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(
                "`class_counts` must be a mapping from label to number of images or a "
                f"sequence of numbers, all integers. Received: {name} of shape "
                f"{values.shape} and type {values.dtype}."
            )
    if not len(counts) or counts.min() < 0 or not counts.max():
        raise ValueError(
            "`class_counts` must be at least 0, with images in some class. "
            f"Received: {counts.tolist()[:10]}."
        )
    return labels.astype("int64"), counts.astype("int64")


def _positions(labels: Tensor, known: np.ndarray) -> tuple[Tensor, Tensor]:
    """Find labels `[B]` in the ascending array of known ones, by halving.

    (TensorFlow's `searchsorted` compares all with all under XLA.)

    Returns:
        Positions `[B]` and a boolean tensor `[B]`, False where a label is unknown.
    """
    table = ops.convert_to_tensor(known)
    kept = known.astype(keras.backend.standardize_dtype(table.dtype))
    if not np.array_equal(kept, known):
        raise ValueError(
            "Labels above 2^31 need 64-bit integers (in JAX: `jax_enable_x64`). "
            f"Received: labels up to {known[-1]} in `class_counts`."
        )
    labels = ops.cast(labels, table.dtype)
    position = ops.zeros_like(labels)
    step = 1 << (len(known) - 1).bit_length() >> 1
    while step:
        probe = ops.minimum(position + step, len(known) - 1)
        position = ops.where(ops.take(table, probe) <= labels, probe, position)
        step >>= 1
    return position, ops.equal(ops.take(table, position), labels)
