"""Compute the margin loss with learned boundaries."""

from typing import Any, Literal

from keras import ops

from tfdml._core.arguments import at_least_zero, one_of, whole
from tfdml._core.batches import checked_batch
from tfdml._core.marks import BOUNDARIES, require_mark
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._margin import count_terms, side_hinges
from tfdml.losses._ranges import LARGEST_OF_UNIT_ROWS, LARGEST_WEIGHT
from tfdml.ops import euclidean_distances, label_masks, unit_rows


class LearnedMarginLoss(MetricLoss):
    """Margin loss whose boundaries, one per class, are learned with the embeddings.

    As `MarginLoss`, with the boundary beta_y of the anchor's class y instead of beta
    (`DistanceWeightedLearnedMarginLoss` is its counterpart with drawn negatives):

        L = 1/T (sum_pos max(0, D_ij - beta_yi + alpha)
                 + sum_neg max(0, alpha + beta_yi - D_ij) + nu sum_i beta_yi)

    `fit` does not train the variables of a loss, so the boundaries are weights of the
    layer `tfdml.layers.ClassBoundaries` at the end of the trained model. The layer
    appends all boundaries to each embedding, and this loss selects the boundary of each
    anchor's class. Labels must be 0 to `num_classes` - 1; another label makes the loss
    NaN.

    Args:
        num_classes: Number of boundaries, as in the layer.
        alpha: Margin on each side of the boundary, from 0 to 10, a Euclidean
            distance.
        nu: Weight of the boundaries themselves, from 0 to 1e6, which keeps them small.
        average: `"active"`: T counts the hinges above 0, as in the authors' code.
            `"valid"`: T counts all pairs.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import keras
        >>> from tfdml.layers import ClassBoundaries
        >>> inputs = keras.Input((8,))
        >>> embeddings = keras.layers.Dense(4)(inputs)
        >>> model = keras.Model(inputs, ClassBoundaries(3)(embeddings))
        >>> model.compile("adam", loss=LearnedMarginLoss(3))
        >>> model.output_shape  # 4 components, 3 boundaries
        (None, 7)
        >>> embedder = keras.Model(inputs, embeddings)  # for the search

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 5 and 6.
    """

    needs_positives = True

    def __init__(
        self,
        num_classes: int,
        *,
        alpha: float = 0.2,
        nu: float = 0.0,
        average: Literal["active", "valid"] = "active",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes: int = whole("num_classes", num_classes)
        self.alpha: float = at_least_zero("alpha", alpha, LARGEST_OF_UNIT_ROWS)
        self.nu: float = at_least_zero("nu", nu, LARGEST_WEIGHT)
        self.average: Literal["active", "valid"] = one_of(
            "average", average, ("active", "valid")
        )

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check labels and the layer's output. See `MetricLoss.checked`."""
        remedy = (
            "End the model with `ClassBoundaries(num_classes)`; a layer of your own "
            "declares its output by `tfdml.layers.as_embeddings_with_boundaries`."
        )
        require_mark(type(self).__name__, y_pred, BOUNDARIES, remedy)
        return checked_batch(y_true, y_pred, self.dtype)

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
        rows = unit_rows(embeddings[:, :dimension])
        distances = at_least_float32(euclidean_distances(rows, rows))
        return self.compared(
            distances, at_least_float32(boundaries), *label_masks(labels), dimension
        )

    def compared(
        self,
        distances: Tensor,
        boundaries: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int,
    ) -> Tensor:
        """Compute the share of each anchor, `[B]`.

        Args:
            distances: Euclidean distances of unit rows, `[B, B]`.
            boundaries: The boundary of each anchor's class, `[B]`.
            positives: Boolean tensor `[B, B]`.
            negatives: Boolean tensor `[B, B]`.
            dimension: Number of components of an embedding.
        """
        scores = distances - ops.expand_dims(boundaries, 1)
        near, far = side_hinges(scores, positives, negatives, self.alpha)
        hinges = near + far
        losses = ops.sum(hinges, axis=1) + self.nu * boundaries
        terms = count_terms(hinges, positives, negatives, self.average)
        return scale_to_mean(losses, terms)

    def _boundaries(self, labels: Tensor, columns: Tensor) -> Tensor:
        """Return the boundary of each anchor's class, `[B]`, or NaN."""
        column = ops.expand_dims(ops.cast(labels, "int32"), 1)
        known = ops.logical_and(column >= 0, column < self.num_classes)
        column = ops.where(known, column, 0)
        boundary = ops.take_along_axis(columns, column, axis=1)
        return ops.squeeze(ops.where(known, boundary, float("nan")), axis=1)
