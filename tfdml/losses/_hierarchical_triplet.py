"""Compute the hierarchical triplet loss, whose margins come from a tree of classes."""

from typing import Any, Literal

from keras import ops

from tfdml._core.arguments import at_least_zero, one_of
from tfdml._core.marks import refuse_marks
from tfdml._core.tensors import Tensor, at_least_float32, count, same_labels
from tfdml.losses._base import MetricLoss
from tfdml.losses._costs import scale_to_mean, weighted_hinges
from tfdml.losses._distance_base import distances
from tfdml.losses._ranges import LARGEST_OF_UNIT_ROWS
from tfdml.ops import hinge_weights, label_masks

_COLUMNS = 4  # and L more, of a row of `ClassHierarchy.targets`


class HierarchicalTripletLoss(MetricLoss):
    """Hierarchical triplet loss (HTL): the margin grows with the distance of classes.

    With a tree of classes (`tfdml.batch_designs.ClassHierarchy`), a an anchor, p its
    positives and n its negatives, over all Z triplets of the batch,

        L = 1/(2 Z) sum max(0, D_ap - D_an + alpha)
        alpha = beta + d_H(y_a, y_n) - s(y_a)

    D is the squared Euclidean distance of unit rows, d_H the threshold of the level on
    which the classes of anchor and negative become one, and s the mean distance within
    the anchor's class, both of the last epoch. So each class moves away from others by
    beta farther than it was. Margins are constants to the gradient.

    The labels of a batch are the rows of `ClassHierarchy.targets`: a compiled loss
    could not follow a tree that changes. Compute the tree anew as the network changes,
    as after each epoch, and draw batches by `HierarchyBatches`.

    An anchor without positives or without negatives adds 0; a batch without triplets
    has the loss 0. No triplet is listed: memory is O(B^2).

    Args:
        beta: At least 0 and at most 10. 0.1 in the paper.
        distance: D: `"squared_euclidean"`, the unit of the margins, or `"euclidean"`,
            as the paper's formula is printed.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range, or the labels are no such rows.

    Example:
        >>> from tfdml.batch_designs import ClassHierarchy
        >>> rows = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> tree = ClassHierarchy(rows, [7, 7, 9, 9], levels=2)
        >>> loss = HierarchicalTripletLoss()
        >>> round(float(loss(tree.targets([7, 7, 9, 9]), rows)), 3)
        0.69

    Reference:
        Ge, Huang, Dong and Scott, Deep Metric Learning with Hierarchical Triplet Loss,
        ECCV 2018.
    """

    def __init__(
        self,
        beta: float = 0.1,
        *,
        distance: Literal["squared_euclidean", "euclidean"] = "squared_euclidean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.beta: float = at_least_zero("beta", beta, LARGEST_OF_UNIT_ROWS)
        self.distance: Literal["squared_euclidean", "euclidean"] = one_of(
            "distance", distance, ("squared_euclidean", "euclidean")
        )

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check rows of `ClassHierarchy.targets`. See `MetricLoss.checked`."""
        refuse_marks(y_pred)
        embeddings = ops.convert_to_tensor(y_pred, dtype=self.dtype)
        # Numbers of classes and nodes must stay apart.
        kind = "float64" if self.dtype == "float64" else "float32"
        targets = ops.convert_to_tensor(y_true, dtype=kind)
        is_rows = len(targets.shape) == 2 and (targets.shape[1] or 99) > _COLUMNS
        if len(embeddings.shape) != 2 or not is_rows:
            raise ValueError(
                "The labels (`y_true`) must be rows of `ClassHierarchy.targets`, and "
                "the embeddings (`y_pred`) of the shape [batch, dimension]. Received: "
                f"shapes {tuple(targets.shape)} and {tuple(embeddings.shape)}."
            )
        rows = targets.shape[0], embeddings.shape[0]
        if None not in rows and rows[0] != rows[1]:
            raise ValueError(
                "The labels (`y_true`) and the embeddings (`y_pred`) must have equally "
                f"many rows. Received: {rows[0]} labels and {rows[1]} embeddings."
            )
        return targets, embeddings

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        positives, negatives = label_masks(labels[:, 0])
        scores = distances(embeddings, embeddings, self.distance, normalize=True)
        scores = at_least_float32(scores)
        margins = ops.cast(self._margins(labels), scores.dtype)
        # A negative that is nearer by its margin makes all margins 0.
        scores = scores - ops.where(negatives, margins, 0)
        weights = hinge_weights(scores, positives, negatives, 0.0)
        hinges, _ = weighted_hinges(scores, positives, weights, 0.0)
        triplets = count(positives, scores.dtype, axis=1)
        triplets = triplets * count(negatives, scores.dtype, axis=1)
        values = scale_to_mean(hinges / 2, ops.sum(triplets))
        return ops.cast(values, embeddings.dtype)

    def _margins(self, targets: Tensor) -> Tensor:
        """Return alpha of each anchor with each row as its negative, `[B, B]`."""
        levels = targets.shape[1] - _COLUMNS
        spread, smallest = targets[:, 1:2], targets[:, 2:3]
        # Nodes are nested: two classes are apart on all levels before they merge.
        level = sum(
            ops.cast(
                ops.logical_not(same_labels(targets[:, n], targets[:, n])), spread.dtype
            )
            for n in range(_COLUMNS - 1, targets.shape[1] - 1)
        )
        merging = smallest + level * (4 - smallest) / levels
        return ops.stop_gradient(self.beta + merging - spread)
