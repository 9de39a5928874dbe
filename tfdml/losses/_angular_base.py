"""Define the base class of the angular losses: the angle and the pairs."""

import math
from abc import abstractmethod
from typing import Any

from keras import ops

from tfdml._core.arguments import above_zero
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._base import MetricLoss
from tfdml.losses._class_mates import encoded_rows
from tfdml.ops import cosine_similarities


class _AngularLoss(MetricLoss):
    """A sum over positive pairs of a cost that depends on their negatives."""

    needs_positives = True

    def __init__(self, angle: float = 45.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # At 89 degrees an exponent is 26,000 times a cosine, and so is its error.
        self.angle: float = above_zero("angle", angle, 89)

    @property
    def squared_tangent(self) -> float:
        """Return t^2, with t the tangent of the angle."""
        return math.tan(math.radians(self.angle)) ** 2

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        scores = at_least_float32(cosine_similarities(embeddings, embeddings))
        rows = encoded_rows(labels, *self.members(labels), scores.dtype)
        values = self.values(scores, rows)
        return ops.cast(values, embeddings.dtype)

    def members(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows are positives and negatives, and which have any, `[B]`."""
        every = ops.ones_like(labels, dtype="bool")
        return every, every

    @abstractmethod
    def values(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`.

        Args:
            scores: Cosine similarities, at least float32, `[B, B]`.
            rows: The classes of the batch, from `encoded_rows`.
        """
