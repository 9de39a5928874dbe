"""Compute the clustering loss, by facility location with a structured margin."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, whole
from tfdml._core.tensors import Tensor, at_least_float32, same_labels
from tfdml.losses._base import MetricLoss
from tfdml.losses._facilities import Facilities
from tfdml.losses._ranges import LARGEST_STRUCTURED_MARGIN
from tfdml.ops import euclidean_distances, unit_rows


class ClusteringLoss(MetricLoss):
    """Clustering loss: the classes are the best clustering of the batch by a margin.

    Rows S of the batch, as many as there are classes, are the medoids of a clustering
    g(S) that gives each row to its nearest medoid. With D the Euclidean distance of
    unit rows and y the classes,

        F(S) = - sum_i min_{j in S} D_ij
        F~ = - sum_classes min_{j of the class} sum_{i of the class} D_ij
        L = max(0, max_S (F(S) + gamma (1 - NMI(g(S), y))) - F~)

    F~ is that of the classes with the best medoid of each. The NMI is the mutual
    information divided by the geometric mean of both entropies. The maximum over S is
    approximated as in the paper: medoids are chosen greedily, then each in turn moves
    to the best row of its cluster (PAM). No gradient passes through the choice.

    L is of the batch as a whole. The value of an anchor is its share: B times the
    difference of its distances to the medoid of its class and to that of its cluster,
    plus the margin. The mean over the batch is L; a share may be negative.

    A batch of one class, or without positives, has the loss 0: its only clustering is
    that of the classes. Equal scores are decided by the order of the rows.

    Memory is O(B^2). With C classes in a batch there are C greedy steps and at most
    `rounds` C further ones, one after another, each of three products of B x B
    matrices: it takes far longer than other losses, see docs/losses/clustering.md.

    Args:
        margin: gamma, from 0 to 1000, the weight of the structured margin, beside a sum
            of distances over the batch.
        rounds: How often all medoids move at most, at least 0.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = ClusteringLoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 3)  # 2 sqrt(2) - 0 + 1
        3.828

    Reference:
        Song, Jegelka, Rathod and Murphy, Deep Metric Learning via Facility Location,
        CVPR 2017, section 3. The code of the authors is
        `tf.contrib.losses.metric_learning.cluster_loss` of TensorFlow 1.
    """

    needs_positives = True

    def __init__(
        self,
        margin: float = 1.0,
        *,
        rounds: int = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin: float = at_least_zero("margin", margin, LARGEST_STRUCTURED_MARGIN)
        self.rounds: int = whole("rounds", rounds, 0)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor in L, `[B]`."""
        embeddings = unit_rows(embeddings)
        rows = ops.arange(ops.shape(labels)[0], dtype="int32")
        distances = at_least_float32(euclidean_distances(embeddings, embeddings))
        # Products round: a row would not be its own nearest medoid.
        distances = ops.where(same_labels(rows, rows), 0, distances)
        fixed = ops.stop_gradient(distances)
        same = same_labels(labels, labels)

        facilities = Facilities(fixed, ops.cast(same, fixed.dtype), self.margin)
        is_medoid = facilities.refined(facilities.greedy(), self.rounds)
        medoid = facilities.assigned(is_medoid)
        margin = self.margin * facilities.margin_of(medoid)

        totals = ops.sum(ops.where(same, fixed, 0), axis=1)
        of_class = ops.argmin(ops.where(same, totals, float("inf")), axis=1)
        gains = _at(distances, of_class) - _at(distances, medoid)
        is_violated = ops.sum(ops.stop_gradient(gains)) + margin > 0
        count = ops.cast(ops.shape(labels)[0], gains.dtype)
        return ops.where(is_violated, count * gains + margin, 0)


def _at(distances: Tensor, columns: Tensor) -> Tensor:
    """Return the distance of each row to the row at its column, `[B]`."""
    columns = ops.expand_dims(ops.cast(columns, "int32"), 1)
    return ops.squeeze(ops.take_along_axis(distances, columns, axis=1), axis=1)
