"""The margin loss: positives nearer than a boundary, negatives farther."""

from typing import Any, Literal

import keras
from keras import ops

from tfdml._arguments import at_least_zero, one_of, whole
from tfdml.losses._base import PairLoss
from tfdml.losses._distance_base import (
    at_least_float32,
    count,
    mean_over,
)
from tfdml.ops import Tensor, euclidean_distances, label_masks, unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class MarginLoss(PairLoss):
    """Margin loss over all pairs, with a fixed boundary between near and far.

    With D the Euclidean distance of unit rows, over the T pairs (i, j), ordered:

        L = 1/T (sum_pos max(0, D_ij - beta + alpha)
                 + sum_neg max(0, alpha + beta - D_ij))

    T is the number of terms above 0 or of all pairs. The paper draws as many negatives
    as positives by their distance: that is `DistanceWeightedMarginLoss`. For boundaries
    that are learned see `LearnedMarginLoss`.

    A batch without positives still pushes negatives apart, and one without negatives
    pulls positives together. A term exactly at its margin has a zero gradient.

    Args:
        alpha: Margin on each side of the boundary, at least 0, a Euclidean distance.
        beta: Boundary, at least 0. Unit rows are at most 2 apart, random ones sqrt(2).
        average: `"active"`: T counts the terms above 0, as in the authors' code.
            `"valid"`: T counts all pairs.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = MarginLoss(alpha=0.2, beta=1.2)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # sqrt(2) - 1.2 + 0.2
        0.414

    Reference:
        Wu, Manmatha, Smola and Kraehenbuehl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 4.
    """

    def __init__(
        self,
        alpha: float = 0.2,
        beta: float = 1.2,
        average: Literal["active", "valid"] = "active",
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "margin_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.alpha: float = at_least_zero("alpha", alpha)
        self.beta: float = at_least_zero("beta", beta)
        self.average: Literal["active", "valid"] = one_of(
            "average", average, ("active", "valid")
        )

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Return how far each pair is beyond the boundary: D - beta, `[A, G]`."""
        return euclidean_distances(unit_rows(anchors), unit_rows(gallery)) - self.beta

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        near, far = side_hinges(scores, positives, negatives, self.alpha)
        losses = ops.sum(near + far, axis=1)
        return mean_over(losses, self._terms(near + far, positives, negatives))

    def _terms(self, hinges: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Count the pairs that the loss is averaged over."""
        if self.average == "active":
            return ops.sum(count(hinges > 0, hinges))
        return ops.sum(count(ops.logical_or(positives, negatives), hinges))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "alpha": self.alpha,
            "beta": self.beta,
            "average": self.average,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class LearnedMarginLoss(MarginLoss):
    """Margin loss whose boundaries, one a class, are learned with the embeddings.

    As `MarginLoss`, with the boundary beta_y of the anchor's class y instead of beta:

        L = 1/T (sum_pos max(0, D_ij - beta_yi + alpha)
                 + sum_neg max(0, alpha + beta_yi - D_ij) + nu sum_i beta_yi)

    `fit` does not train a variable that a loss holds, so the boundaries live in the
    layer `tfdml.layers.ClassBoundaries`, which ends the model that is trained:
    it appends all boundaries to each embedding, and this loss takes each anchor's from
    there. Labels must be 0 to `num_classes` - 1; another label makes the loss NaN.

    Args:
        num_classes: Number of boundaries: that of the layer.
        alpha: Margin on each side of the boundary, at least 0, a Euclidean distance.
        nu: Weight of the boundaries themselves, at least 0; it keeps them small.
        average: `"active"`: T counts the hinges above 0, as in the authors' code.
            `"valid"`: T counts all pairs.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> from tfdml.layers._class_boundaries import ClassBoundaries
        >>> inputs = keras.Input((8,))
        >>> embeddings = keras.layers.Dense(4)(inputs)
        >>> model = keras.Model(inputs, ClassBoundaries(3)(embeddings))
        >>> model.compile("adam", loss=LearnedMarginLoss(3))
        >>> model.output_shape  # 4 components, 3 boundaries
        (None, 7)
        >>> embedder = keras.Model(inputs, embeddings)  # for the search

    Reference:
        Wu, Manmatha, Smola and Kraehenbuehl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 5 and 6.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.2,
        nu: float = 0.0,
        average: Literal["active", "valid"] = "active",
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "learned_margin_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            alpha, 0.0, average, reduction=reduction, name=name, dtype=dtype
        )
        self.num_classes: int = whole("num_classes", num_classes)
        self.nu: float = at_least_zero("nu", nu)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Split the model's output and compare the embeddings, `[B]`."""
        dimension = embeddings.shape[1] - self.num_classes
        if dimension < 1:
            raise ValueError(
                "The model must end with `ClassBoundaries(num_classes)`, which appends "
                "the boundaries to the embeddings. Received: outputs of "
                f"{embeddings.shape[1]} columns with num_classes={self.num_classes}."
            )
        boundaries = self._boundaries(labels, embeddings[:, dimension:])
        embeddings = embeddings[:, :dimension]
        positives, negatives = label_masks(labels)
        scores = self.scores(embeddings, embeddings) - ops.expand_dims(boundaries, 1)
        scores, boundaries = at_least_float32(scores), at_least_float32(boundaries)
        near, far = side_hinges(scores, positives, negatives, self.alpha)
        losses = ops.sum(near + far, axis=1) + self.nu * boundaries
        return mean_over(losses, self._terms(near + far, positives, negatives))

    def _boundaries(self, labels: Tensor, columns: Tensor) -> Tensor:
        """Return the boundary of each anchor's class, `[B]`; NaN where it has none."""
        column = ops.expand_dims(ops.cast(labels, "int32"), 1)
        known = ops.logical_and(column >= 0, column < self.num_classes)
        column = ops.where(known, column, 0)
        boundary = ops.take_along_axis(columns, column, axis=1)
        return ops.squeeze(ops.where(known, boundary, float("nan")), axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["beta"]
        return {**config, "num_classes": self.num_classes, "nu": self.nu}


def side_hinges(
    scores: Tensor, positives: Tensor, negatives: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """Return what positives are too far and negatives too near, `[A, G]` each."""
    near = ops.where(positives, ops.relu(scores + alpha), 0)
    far = ops.where(negatives, ops.relu(alpha - scores), 0)
    return near, far
