"""Compute the angular loss: a bound on the angle at each negative."""

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._angular_base import _AngularLoss
from tfdml.losses._angular_costs import ExactSoftCosts, SharesOfRows
from tfdml.losses._angular_sums import sums_of_pairs
from tfdml.losses._class_mates import ClassMates
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
    memory. If P is above B / 64 and 3, the sums over n of e^(4 t^2 a.n) e^(4 t^2 p.n)
    are one product of two B x B matrices instead. Above 70 degrees these factors do not
    fit float32: then each pair has its own log-sum-exp, which takes longer and is exact
    at any angle.

    Args:
        angle: alpha in degrees, above 0 and at most 89. 36 to 55 in the paper.
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

    def values(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        costs = SharesOfRows if self.angle <= WIDEST_ANGLE else ExactSoftCosts
        sums = sums_of_pairs(
            scores, rows, self.squared_tangent, costs, self.rows_per_partner
        )
        pairs = ClassMates.of(rows).number_of_pairs(scores.dtype)
        return scale_to_mean(sums[:, 0], ops.sum(pairs))
