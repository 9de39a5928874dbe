"""Define the base class of the angular losses: the angle and the pairs."""

import math
from abc import abstractmethod
from typing import Any

from keras import ops

from tfdml._core.arguments import above_zero
from tfdml._core.tensors import Tensor, at_least_float32
from tfdml.losses._base import MetricLoss
from tfdml.ops import cosine_similarities, label_masks


class _AngularLoss(MetricLoss):
    """A sum over positive pairs of a cost that depends on their negatives."""

    needs_positives = True

    def __init__(self, angle: float = 45.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 < above_zero("angle", angle) < 90:
            raise ValueError(
                "`angle` must be above 0 and below 90 degrees. "
                f"Received: angle={angle}."
            )
        self.angle: float = float(angle)

    @property
    def squared_tangent(self) -> float:
        """Return t^2, with t the tangent of the angle."""
        return math.tan(math.radians(self.angle)) ** 2

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        scores = at_least_float32(cosine_similarities(embeddings, embeddings))
        positives, negatives = self.pairs(labels)
        pairs = ops.logical_and(positives, ops.any(negatives, axis=1, keepdims=True))
        values = self.values(scores, pairs, negatives)
        return ops.cast(values, embeddings.dtype)

    def pairs(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positives and the negatives of each anchor, `[B, B]` each."""
        return label_masks(labels)

    @abstractmethod
    def values(self, scores: Tensor, pairs: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`.

        Args:
            scores: Cosine similarities, at least float32, `[B, B]`.
            pairs: Positive pairs whose anchor has a negative, boolean `[B, B]`.
            negatives: Boolean `[B, B]`.
        """
