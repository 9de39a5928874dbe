"""Compute the relational distillation: distances and angles of a teacher."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, boolean
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._continuous_base import other_items
from tfdml.losses._distillation_base import DistillationLoss
from tfdml.losses._distilled_angles import angle_costs
from tfdml.losses._ranges import LARGEST_WEIGHT
from tfdml.ops import euclidean_distances, unit_rows


class RelationalDistillationLoss(DistillationLoss):
    """Relational distillation (RKD): distances and angles of a batch as the teacher's.

    With psi the Euclidean distance of two items divided by its mean over all pairs of
    two different items, phi the cosine of the angle at an item j between the directions
    to i and k, s the student and t the teacher, and h the Huber loss (delta = 1),

        L = l_D mean over i, j    of h(psi(s_i, s_j) - psi(t_i, t_j))
          + l_A mean over i, j, k of h(phi(s_i, s_j, s_k) - phi(t_i, t_j, t_k))

    The means are over all B^2 pairs and B^3 triplets, as in the authors' code. Neither
    depends on the size of embeddings, so the dimensions may differ. The share of an
    anchor j are the pairs with it and the angles at it. Items at one place have the
    distance 0, and the cosine 0 at each other.

    Angles take one product [B, dimension] x [dimension, B] for each item, one after the
    other: B times the work of a pair-based loss, but its memory.

    Args:
        distance_weight: l_D, from 0 to 1e6.
        angle_weight: l_A, from 0 to 1e6; 0 saves the time of the angles. The authors'
            example has twice the weight of distances.
        normalize: Whether embeddings of both are scaled to unit length first. The
            student of the authors' example is not.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range, or `y_true` are no embeddings.

    Example:
        >>> loss = RelationalDistillationLoss(normalize=False)
        >>> teacher = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
        >>> student = [[0.0, 3.0, 0.0], [0.0, 3.0, 2.0], [0.0, 5.0, 0.0]]
        >>> round(float(loss(teacher, student)), 4)  # turned, moved and twice as large
        0.0

    Reference:
        Park, Kim, Lu and Cho, Relational Knowledge Distillation, CVPR 2019.
    """

    def __init__(
        self,
        distance_weight: float = 1.0,
        *,
        angle_weight: float = 2.0,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.distance_weight: float = at_least_zero(
            "distance_weight", distance_weight, LARGEST_WEIGHT
        )
        self.angle_weight: float = at_least_zero(
            "angle_weight", angle_weight, LARGEST_WEIGHT
        )
        if not distance_weight and not angle_weight:
            raise ValueError(
                "`angle_weight` must be above 0 with distance_weight=0, or nothing is "
                f"distilled. Received: angle_weight={angle_weight}."
            )
        self.normalize: bool = boolean("normalize", normalize)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`; the labels are the teacher's."""
        teacher, student = at_least_float32(labels), at_least_float32(embeddings)
        if self.normalize:
            teacher, student = unit_rows(teacher), unit_rows(student)
        values = ops.zeros_like(student[:, 0])
        if self.distance_weight:
            values = values + self.distance_weight * _distance_costs(teacher, student)
        if self.angle_weight:
            values = values + self.angle_weight * angle_costs(teacher, student)
        return ops.cast(values, embeddings.dtype)


def _distance_costs(teacher: Tensor, student: Tensor) -> Tensor:
    """Average the costs of the distances of each item to all, `[B]`."""
    others = other_items(student)
    gaps = _relative_distances(student, others) - _relative_distances(teacher, others)
    size = ops.abs(gaps)
    costs = ops.where(size < 1, ops.square(gaps) / 2, size - 0.5)
    return ops.sum(costs, axis=1) / ops.cast(ops.shape(costs)[0], costs.dtype)


def _relative_distances(embeddings: Tensor, others: Tensor) -> Tensor:
    """Divide the distances of different items by their mean, `[B, B]`."""
    distances = ops.where(others, euclidean_distances(embeddings, embeddings), 0)
    # Means of rows first: the mean is over pairs of two different items.
    rows = ops.cast(ops.shape(embeddings)[0], distances.dtype)
    mean = ops.sum(ops.sum(distances, axis=1) / rows) / ops.maximum(rows - 1, 1)
    return distances / ops.where(mean > 0, mean, ops.ones_like(mean))
