"""Angular losses: the angle at the negative of a triplet."""

import math
from typing import Any, Literal

import keras
from keras import ops

from tfdml._arguments import above_zero, one_of
from tfdml.losses._base import MetricLoss
from tfdml.losses._distance_base import at_least_float32, count, mean_over
from tfdml.losses._n_pair import first_of_pair
from tfdml.ops import (
    Tensor,
    anchors_per_pair,
    cond,
    cosine_similarities,
    hinge_costs,
    label_masks,
    soft_costs,
    sums_by_product,
    sums_by_rows,
    sums_in_turn,
)

WIDEST_ANGLE = 70.0
"""Up to here e^(-8 t^2), the least that two rows of shares make, is a float32."""

ROWS_A_PARTNER = 64
"""With so many rows for each partner of an anchor, taking these in turn is faster."""


class _AngularLoss(MetricLoss):
    """What the angular losses share: a sum over pairs of what their negatives cost."""

    def __init__(
        self, angle: float, *, reduction: str | None, name: str | None, dtype: Any
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if not 0 < above_zero("angle", angle) < 90:
            raise ValueError(
                "`angle` must be above 0 and below 90 degrees. "
                f"Received: angle={angle}."
            )
        self.angle: float = float(angle)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute the part of each anchor in the loss, `[B]`."""
        scores = at_least_float32(cosine_similarities(embeddings, embeddings))
        values = self._values(scores, *self._pairs(labels))
        return ops.cast(values, embeddings.dtype)

    def _pairs(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        return label_masks(labels)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "angle": self.angle}


@keras.saving.register_keras_serializable(package="tfdml")
class AngularLoss(_AngularLoss):
    """Angular loss over all positive pairs: bounds the angle at each negative.

    With unit vectors a, p and n and t = tan(alpha), a positive pair (a, p) costs

        log(1 + sum over negatives n of
                e^(4 t^2 (a + p).n - 2 (1 + t^2) a.p))

    and the loss is the mean over all ordered positive pairs. The value of an anchor is
    the sum over its pairs, times (anchors / pairs), so that the mean over the batch is
    the loss. An anchor without positives or without negatives adds 0.

    The negatives of both ends of a pair come into one value: the loss needs a batch
    that is compared with itself. With P positives an anchor it takes O(B^2 P)
    operations and O(B^2) memory. Where P is above B / 64 the sums over n of
    e^(4 t^2 a.n) e^(4 t^2 p.n) are one product of two B x B matrices instead, each row
    scaled by its largest term. That is exact up to 70 degrees, 80 in float64; at larger
    angles a sum may be smaller than the smallest number, where a and p are far apart,
    and that number stands for it.

    Args:
        angle: alpha in degrees, above 0 and below 90. 36 to 55 in the paper.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in; float16 and bfloat16 are widened.

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
        super().__init__(angle, reduction=reduction, name=name, dtype=dtype)

    def _values(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        squared = math.tan(math.radians(self.angle)) ** 2
        pairs = ops.logical_and(positives, ops.any(negatives, axis=1, keepdims=True))
        most = ops.max(ops.sum(ops.cast(pairs, "int32"), axis=1))
        values = cond(
            ROWS_A_PARTNER * most <= ops.shape(scores)[0],
            lambda: self._in_turn(scores, pairs, negatives, squared),
            lambda: sums_by_product(scores, pairs, negatives, squared),
        )
        return values * anchors_per_pair(pairs, values.dtype)

    def _in_turn(
        self, scores: Tensor, pairs: Tensor, negatives: Tensor, squared: float
    ) -> Tensor:
        """Sum the costs of each anchor's pairs, one after the other."""
        if self.angle <= WIDEST_ANGLE:
            return sums_by_rows(scores, pairs, negatives, squared)
        return sums_in_turn(scores, pairs, negatives, squared, soft_costs)[:, 0]


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
        dtype: Type that the loss is computed in; float16 and bfloat16 are widened.

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

    def _pairs(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        positives, negatives = label_masks(labels)
        first = first_of_pair(labels)
        is_positive = ops.expand_dims(ops.logical_not(first), 0)
        pairs = ops.logical_and(ops.expand_dims(first, 1), is_positive)
        return (
            ops.logical_and(positives, pairs),
            ops.logical_and(negatives, is_positive),
        )


@keras.saving.register_keras_serializable(package="tfdml")
class AngularTripletLoss(_AngularLoss):
    """Angular loss in its first form, a hinge over all triplets.

    With unit vectors a, p and n and t = tan(alpha), over the T valid triplets

        L = 1/T sum max(0, ||a - p||^2 - 4 t^2 ||n - (a + p) / 2||^2)

    which is above 0 where the angle at n, of the triangle that n makes with the circle
    around a and p, is above alpha. An anchor without positives or without negatives
    adds 0; a batch without triplets has the loss 0.

    No triplet is listed: O(B^2 P) operations for P positives an anchor, O(B^2) memory.
    As in `AngularLoss` the batch is compared with itself.

    Args:
        angle: alpha in degrees, above 0 and below 90. 36 to 55 in the paper, where it
            starts; with unit vectors the hinge is active for few triplets above 30.
        average: `"valid"`: T counts every triplet. `"active"`: T counts those above 0.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in; float16 and bfloat16 are widened.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = AngularTripletLoss(angle=30)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # 2 - 4/3 * 0.5
        1.3333

    Reference:
        Wang, Zhou, Wen, Liu and Lin, Deep Metric Learning with Angular Loss, ICCV
        2017, Eq. 4.
    """

    def __init__(
        self,
        angle: float = 45.0,
        average: Literal["valid", "active"] = "valid",
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "angular_triplet_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(angle, reduction=reduction, name=name, dtype=dtype)
        self.average: Literal["valid", "active"] = one_of(
            "average", average, ("valid", "active")
        )

    def _values(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        squared = math.tan(math.radians(self.angle)) ** 2
        pairs = ops.logical_and(positives, ops.any(negatives, axis=1, keepdims=True))
        sums = sums_in_turn(scores, pairs, negatives, squared, hinge_costs)
        if self.average == "active":
            return mean_over(sums[:, 0], ops.sum(ops.stop_gradient(sums[:, 1])))
        triplets = count(positives, scores) * count(negatives, scores)
        return mean_over(sums[:, 0], ops.sum(triplets))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "average": self.average}
