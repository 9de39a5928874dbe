"""Compute the contrastive loss with pairs weighted by class size."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from keras import ops

from tfdml._core.arguments import above_zero, boolean, finite
from tfdml._core.tensors import Tensor
from tfdml.batch_designs import group_importance, random_pair_importance
from tfdml.losses._base import MetricLoss
from tfdml.losses._class_counts import ClassCounts
from tfdml.losses._ranges import LARGEST
from tfdml.ops import euclidean_distances, label_masks, unit_rows


class WeightedContrastiveLoss(MetricLoss):
    """Contrastive loss that weights pairs as if all pairs were equally frequent.

    The (m, n)-group design, m images of each of n classes in a batch, draws the pairs
    of small classes far more often than others. With D the Euclidean distance, the
    loss is the mean over all ordered pairs (i, j) of the batch of

        W_ij^delta D_ij^2                    for positives
        W_ij^delta max(0, margin - D_ij)^2   for negatives

    where W is the probability of the pair among all pairs of the data set divided by
    its probability in the design (see `tfdml.batch_designs.group_importance`). With
    delta = 1 its expectation is the mean over all pairs of the data set, with delta = 0
    it is `ContrastiveLoss`.

    A class with fewer than m images cannot be drawn in this design: W is 0 for its
    pairs. W depends on both labels of a pair, so the loss compares a batch with itself.
    A label that is not in `class_counts` is refused; inside a compiled
    function, where values are unknown, the loss is NaN instead.

    In the p-random design (`positive_probability`), rows 2t and 2t + 1 of the batch are
    pair t, as `tfdml.batch_designs.PairBatches` draws them. Then the loss is the mean
    over these pairs alone, i the first row, j the second, with the W of that design
    (see `tfdml.batch_designs.random_pair_importance`), which excludes classes of one
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
        power: delta, finite, with which no weight is above 1e12. Values below 1
            weaken the weights; those below 0 reverse them, so that the pairs that the
            design favors weigh most.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = WeightedContrastiveLoss(
        ...     {7: 30, 9: 10}, images_per_class=2, classes_per_batch=2
        ... )
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # W 3.346, 0.346, 0.577
        1.4231

    Reference:
        Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss, Eqs. 23
        and 25 and section 6.2.
    """

    needs_positives = True

    def __init__(
        self,
        class_counts: Mapping[int, int] | Sequence[int] | np.ndarray,
        *,
        images_per_class: int | None = None,
        classes_per_batch: int | None = None,
        positive_probability: float | None = None,
        margin: float = 1.0,
        power: float = 1.0,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._counts = ClassCounts(class_counts)
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
                    "`positive_probability` must be None with `images_per_class` and "
                    "`classes_per_batch`, which describe another design. Received: "
                    f"positive_probability={positive_probability}, images_per_class="
                    f"{images_per_class}."
                )
            # Refuses a probability that is out of range.
            random_pair_importance(self._counts.numbers, positive_probability)
        self.positive_probability: float | None = positive_probability
        self.images_per_class: int | None = images_per_class
        self.classes_per_batch: int | None = classes_per_batch
        self.margin: float = above_zero("margin", margin, LARGEST)
        self.power: float = finite("power", power)
        with np.errstate(over="ignore"):
            # A class does not know its `balance` yet: eta has a range of its own.
            both = WeightedContrastiveLoss._class_weights(self).max(axis=0)
            largest = max(both[0], both[1] * both[2])
        if not largest <= LARGEST:
            raise ValueError(
                f"`power` must leave all weights of pairs at most {LARGEST:g}: larger "
                f"ones hide all other pairs. Received: power={power:g}, with which the "
                f"largest weight is {largest:g}."
            )
        self.normalize: bool = boolean("normalize", normalize)

    @property
    def class_counts(self) -> dict[int, int] | list[int]:
        """Return the number of training images of each class."""
        return self._counts.to_config()

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the mean over the pairs of each anchor, `[B]`."""
        if self.normalize:
            embeddings = unit_rows(embeddings)
        weights = self._counts.look_up(labels, self._class_weights(), embeddings.dtype)
        if self.positive_probability is not None:
            return self._compare_pairs(labels, embeddings, weights)
        return self._compare_all(labels, embeddings, weights)

    def _compare_all(
        self, labels: Tensor, embeddings: Tensor, weights: Tensor
    ) -> Tensor:
        """Compute the mean over the pairs of each anchor with all other rows, `[B]`."""
        positives, negatives = label_masks(labels)
        distances = euclidean_distances(embeddings, embeddings)
        near = weights[:, 0:1] * ops.square(distances)
        far = ops.square(ops.relu(self.margin - distances))
        far = far * weights[:, 1:2] * ops.expand_dims(weights[:, 2], 0)
        values = ops.where(positives, near, ops.where(negatives, far, 0))
        others = ops.maximum(ops.shape(labels)[0] - 1, 1)
        return ops.sum(values, axis=1) / ops.cast(others, values.dtype)

    def _compare_pairs(
        self, labels: Tensor, embeddings: Tensor, weights: Tensor
    ) -> Tensor:
        """Compute twice the value of each pair at its first row, `[B]`."""
        if embeddings.shape[0] is not None and embeddings.shape[0] % 2:
            raise ValueError(
                "A batch of pairs must have an even number of rows. "
                f"Received: {embeddings.shape[0]}."
            )
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
        """Return the number of images that a class needs for the design to draw it."""
        if self.positive_probability is not None:
            return 2
        return self.images_per_class or 1

    def _class_weights(self) -> np.ndarray:
        """Return the weights of a class in positive and negative pairs, `[C, 3]`."""
        m, n, p = (
            self.images_per_class,
            self.classes_per_batch,
            self.positive_probability,
        )
        numbers = self._counts.numbers
        if p is not None:
            positive, negative = random_pair_importance(numbers, p)
        elif m is not None and n is not None:
            positive, negative = group_importance(numbers, m, n)
        else:
            return np.ones((len(numbers), 3))
        is_drawn = numbers >= self._smallest_class()  # 0^0 would be 1
        weights = np.stack([positive, negative, negative], axis=1)
        # A kind of pair that is never drawn weighs 0 with a power below 0, too.
        never = np.inf if self.power < 0 else 0
        weights = np.where(weights > 0, weights, never) ** self.power
        return np.where(is_drawn[:, np.newaxis], weights, 0)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the loss from the dictionary of `get_config`, also from JSON."""
        counts = config["class_counts"]
        if isinstance(counts, Mapping):  # JSON has only string keys
            counts = {int(label): number for label, number in counts.items()}
        return super().from_config({**config, "class_counts": counts})
