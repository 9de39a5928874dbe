"""What every loss of the library shares: integer labels, per-anchor values."""

from abc import abstractmethod
from typing import Any

import keras
from keras import ops

from tfdml.ops import (
    Tensor,
    checked_batch,
    cosine_similarities,
    label_masks,
    refuse_mask,
)


class _Reduction(keras.losses.Loss):
    """Keras' own reduction and sample weighting of values computed elsewhere."""

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


class MetricLoss(keras.losses.Loss):
    """A loss over the labels and embeddings of a batch, one value an anchor.

    Keras casts the labels that it hands to a loss to the loss's float type, where
    different classes become one: 256 and 257 in bfloat16, 2^24 and 2^24 + 1 in
    float32. Here labels keep the type they come in. A subclass writes
    `call(labels, embeddings)` and returns one value an anchor, scaled so that the
    mean over the batch is the published value. (Keras scales a scalar wrongly under
    `tf.distribute`.)

    A NaN in an embedding makes the value of its anchor NaN, and so the mean, even where
    the loss compares that item with none. A mask on the embeddings, as a
    `keras.layers.Masking` on `[batch, dimension]` gives, is refused: leave masked rows
    out of the batch, as a pair with one of them would still count.

    Args:
        reduction: As in Keras: `"sum_over_batch_size"` is the mean over anchors.
        name: Name of the loss.
        dtype: Type that the loss is computed in. Defaults to `keras.config.floatx()`,
            also in a mixed-precision model.
    """

    def __init__(
        self,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self._reduce = _Reduction(reduction=reduction, dtype=self.dtype)

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Compute the reduced loss of one batch.

        Args:
            y_true: Integer labels `[B]` or `[B, 1]`. Labels of a float type must be
                whole numbers; outside a compiled function this is checked.
            y_pred: Embeddings `[B, dimension]`.
            sample_weight: Optional weight of each anchor, `[B]`.

        Returns:
            Scalar, or `[B]` with `reduction=None`.

        Raises:
            ValueError: The shapes do not fit, a label is no whole number, or the
                embeddings carry a mask.
        """
        refuse_mask(y_pred)
        labels, embeddings = self.checked(y_true, y_pred)
        with keras.name_scope(self.name):
            values = self.call(labels, embeddings)
            # Maxima, sorts and masks of pairs may pass a NaN over.
            axes = tuple(range(1, len(embeddings.shape)))
            broken = ops.any(ops.isnan(embeddings), axis=axes)
            values = ops.where(broken, float("nan"), values)
            return self._reduce(values, values, sample_weight=sample_weight)

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check a batch and return it as `call` takes it.

        A loss on other labels than class ids, or on other outputs than embeddings,
        overrides this.
        """
        return checked_batch(y_true, y_pred, self.dtype)

    @abstractmethod
    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute one loss per anchor, `[B]`."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, the type included."""
        return {**super().get_config(), "dtype": self.dtype}


class PairLoss(MetricLoss):
    """A loss that is a function of the scores of all pairs alone.

    Scores are cosine similarities; a subclass that works on something else, such as
    distances, overrides `scores`. It writes one pure method, `pair_loss`. By General
    Pair Weighting (Wang et al., Multi-Similarity Loss with General Pair Weighting for
    Deep Metric Learning, CVPR 2019) this form covers the pair-based losses, and its
    gradient with respect to a score is the weight of that pair.
    """

    @property
    def is_pairwise(self) -> bool:
        """Whether `pair_loss` is the whole loss, so that it serves other sets too."""
        return type(self).call is PairLoss.call

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch with itself, each item left out of its own gallery."""
        scores = self.scores(embeddings, embeddings)
        return self.pair_loss(scores, *label_masks(labels))

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compare anchors `[A, dim]` with a gallery `[G, dim]`; returns `[A, G]`."""
        return cosine_similarities(anchors, gallery)

    @abstractmethod
    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor from its scores.

        Args:
            scores: Float tensor `[A, G]`, as `scores` gives for A anchors and G items.
            positives: Boolean tensor `[A, G]`: the items an anchor should be near.
            negatives: Boolean tensor `[A, G]`: the items it should be far from. Items
                in neither mask, such as the anchor itself, do not count.

        Returns:
            Float tensor `[A]`.
        """
