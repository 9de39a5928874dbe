"""Angular losses: the angle at the negative of a triplet."""

import math
from typing import Any

import keras
from keras import ops

from tfdml.losses.base import MetricLoss
from tfdml.losses.npair import first_of_pair
from tfdml.pairs import (
    Tensor,
    anchors_per_pair,
    cosine_similarities,
    label_masks,
    softplus,
)

__all__ = ["AngularLoss", "MultiClassAngularLoss"]

_SMALLEST = {"float64": 1e-300, "float16": 1e-4}
"""Smallest sum of a type; 1e-37 in float32 and bfloat16."""


@keras.saving.register_keras_serializable(package="tfdml")
class AngularLoss(MetricLoss):
    """Angular loss over all positive pairs: bounds the angle at each negative.

    With unit vectors a, p and n and t = tan(alpha), a positive pair (a, p) costs

        log(1 + sum over negatives n of
                e^(4 t^2 (a + p).n - 2 (1 + t^2) a.p))

    and the loss is the mean over all ordered positive pairs. The value of an anchor is
    the sum over its pairs, times (anchors / pairs), so that the mean over the batch is
    the loss. An anchor without positives or without negatives adds 0.

    The negatives of both ends of a pair come into one value: the loss needs a batch
    that is compared with itself. The sums over n of e^(4 t^2 a.n) e^(4 t^2 p.n) are
    one product of two B x B matrices: memory O(B^2), and B^3 multiplications, as many
    as the matrix of similarities of embeddings of B dimensions takes. Each row is
    scaled by its largest term, which is exact up to 70 degrees in float32 and bfloat16,
    80 in float64, 45 in float16. At larger angles a sum may be smaller than the
    smallest number, where a and p are far apart; that number stands for it then: the
    value is too large, and the pair is drawn together but not off its negatives.

    Args:
        angle: alpha in degrees, above 0 and below 90. 36 to 55 in the paper.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `angle` is out of range.

    Example:
        >>> loss = AngularLoss(angle=45)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # log(1 + e^(4 - 0))
        4.0181

    Reference:
        Wang, Zhou, Wen, Liu and Lin, Deep Metric Learning with Angular Loss, ICCV
        2017, Eqs. 5 to 8 (the constant of the hinge form is left out, as there).
    """

    def __init__(
        self,
        angle: float = 45.0,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "angular_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if not 0 < angle < 90:
            raise ValueError(
                "`angle` must be above 0 and below 90 degrees. "
                f"Received: angle={angle}."
            )
        self.angle: float = float(angle)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the part of each anchor in the loss, `[B]`."""
        return self._values(embeddings, *label_masks(labels))

    def _values(
        self, embeddings: Tensor, positives: Tensor, negatives: Tensor
    ) -> Tensor:
        squared = math.tan(math.radians(self.angle)) ** 2
        scores = cosine_similarities(embeddings, embeddings)
        found = ops.any(negatives, axis=1, keepdims=True)
        pairs = ops.logical_and(positives, found)
        logits = 4 * squared * scores
        largest = ops.max(ops.where(negatives, logits, -float("inf")), axis=1)
        largest = ops.expand_dims(
            ops.stop_gradient(ops.where(found[:, 0], largest, 0)), 1
        )
        # Masked before exp: an overflow that `where` hides still has a NaN gradient.
        shares = ops.exp(ops.where(negatives, logits - largest, -float("inf")))
        # Both ends of a pair have the same negatives, so that its sum is above 0, but
        # it may be too small for the type. (Written so that NaN passes.)
        sums = ops.where(pairs, ops.matmul(shares, ops.transpose(shares)), 1)
        smallest = _SMALLEST.get(self.dtype, 1e-37)
        sums = ops.where(sums < smallest, smallest, sums)
        rivals = ops.log(sums) + largest + ops.transpose(largest)
        values = softplus(rivals - 2 * (1 + squared) * scores)
        values = ops.sum(ops.where(pairs, values, 0), axis=1)
        return values * anchors_per_pair(pairs, values.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "angle": self.angle}


@keras.saving.register_keras_serializable(package="tfdml")
class MultiClassAngularLoss(AngularLoss):
    """Angular loss of a batch of pairs: negatives are the others' positives.

    The batch holds N classes with two rows each, the first an anchor a_i, the second
    its positive p_i:

        mean over i of log(1 + sum over j != i of
                           e^(4 t^2 (a_i + p_i).p_j - 2 (1 + t^2) a_i.p_i))

    with t = tan(alpha). The value of an anchor is twice its cost, that of the other
    rows 0, so that the mean over the batch is the mean over the pairs. Order in the
    batch and classes of other sizes are as in `MultiClassNPairLoss`; all else is as in
    `AngularLoss`.

    Args:
        angle: alpha in degrees, above 0 and below 90. 36 to 55 in the paper.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `angle` is out of range.

    Example:
        >>> loss = MultiClassAngularLoss(angle=45)
        >>> embeddings = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # log(1 + e^(0 - 4))
        0.0181

    Reference:
        Wang, Zhou, Wen, Liu and Lin, Deep Metric Learning with Angular Loss, ICCV
        2017, Eq. 8.
    """

    def __init__(
        self,
        angle: float = 45.0,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "multi_class_angular_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(angle, reduction=reduction, name=name, dtype=dtype)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the part of each anchor in the loss, `[B]`."""
        positives, negatives = label_masks(labels)
        first = first_of_pair(labels)
        is_positive = ops.expand_dims(ops.logical_not(first), 0)
        pairs = ops.logical_and(ops.expand_dims(first, 1), is_positive)
        return self._values(
            embeddings,
            ops.logical_and(positives, pairs),
            ops.logical_and(negatives, is_positive),
        )
