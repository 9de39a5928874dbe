"""Compute the angular loss: a bound on the angle at each negative."""

from keras import ops

from tfdml._core.control_flow import cond
from tfdml._core.tensors import Tensor, count
from tfdml.losses._angular_base import _AngularLoss
from tfdml.losses._angular_sums import (
    soft_costs,
    sums_by_product,
    sums_by_rows,
    sums_in_turn,
)
from tfdml.losses._costs import scale_to_mean

WIDEST_ANGLE = 70.0
"""Up to this angle e^(-8 t^2), the smallest product of shares, is a float32."""


class AngularLoss(_AngularLoss):
    """Angular loss over all positive pairs: bounds the angle at each negative.

    With unit vectors a, p and n and t = tan(alpha), a positive pair (a, p) costs

        log(1 + sum over negatives n of
                e^(4 t^2 (a + p).n - 2 (1 + t^2) a.p))

    and the loss is the mean over all ordered positive pairs. The value of an anchor is
    the sum over its pairs, times (anchors / pairs), so that the mean over the batch is
    the loss. An anchor without positives or without negatives adds 0.

    The negatives of both ends of a pair enter one value, so the loss compares a batch
    with itself. With P positives per anchor it takes O(B^2 P) operations and O(B^2)
    memory. If P is above B / 64 the sums over n of e^(4 t^2 a.n) e^(4 t^2 p.n) are one
    product of two B x B matrices instead, each row scaled by its largest term. That is
    exact up to 70 degrees, 80 in float64; at larger angles a sum may be smaller than
    the smallest number if a and p are far apart, and is replaced by that number.

    Args:
        angle: alpha in degrees, above 0 and below 90. 36 to 55 in the paper.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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

    rows_per_partner = 64
    """From this number of rows per partner on, a loop over partners is faster."""

    def values(self, scores: Tensor, pairs: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        squared = self.squared_tangent
        most = ops.max(ops.sum(ops.cast(pairs, "int32"), axis=1))
        values = cond(
            self.rows_per_partner * most <= ops.shape(scores)[0],
            lambda: self._in_turn(scores, pairs, negatives),
            lambda: sums_by_product(scores, pairs, negatives, squared),
        )
        return scale_to_mean(values, count(pairs, values.dtype))

    def _in_turn(self, scores: Tensor, pairs: Tensor, negatives: Tensor) -> Tensor:
        """Sum the costs of each anchor's pairs, one after the other."""
        squared = self.squared_tangent
        if self.angle <= WIDEST_ANGLE:
            return sums_by_rows(scores, pairs, negatives, squared)
        return sums_in_turn(scores, pairs, negatives, squared, soft_costs)[:, 0]
