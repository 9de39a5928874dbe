"""Compute the angular loss in its hinge form, over all triplets."""

from typing import Any, Literal

from keras import ops

from tfdml._core.arguments import one_of
from tfdml._core.tensors import Tensor, count
from tfdml.losses._angular_base import _AngularLoss
from tfdml.losses._angular_costs import HingeCosts
from tfdml.losses._angular_sums import sums_of_pairs
from tfdml.losses._class_mates import ClassMates
from tfdml.losses._costs import scale_to_mean


class AngularTripletLoss(_AngularLoss):
    """Angular loss in its first form, a hinge over all triplets.

    With unit vectors a, p and n and t = tan(alpha), over the T valid triplets

        L = 1/T sum max(0, ||a - p||^2 - 4 t^2 ||n - (a + p) / 2||^2)

    which is above 0 where the angle at n, of the triangle that n makes with the circle
    around a and p, is above alpha. An anchor without positives or without negatives
    adds 0; a batch without triplets has the loss 0.

    No triplet is listed: O(B^2 P) operations for P positives per anchor, O(B^2) memory.
    As in `AngularLoss` the batch is compared with itself.

    Args:
        angle: alpha in degrees, above 0 and at most 89. 36 to 55 in the paper, where it
            starts; with unit vectors the hinge is active for few triplets above 30.
        average: `"valid"`: T counts every triplet. `"active"`: T counts those above 0.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

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
        *,
        average: Literal["valid", "active"] = "valid",
        **kwargs: Any,
    ) -> None:
        super().__init__(angle, **kwargs)
        self.average: Literal["valid", "active"] = one_of(
            "average", average, ("valid", "active")
        )

    def values(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Compute the share of each anchor, `[B]`."""
        sums = sums_of_pairs(scores, rows, self.squared_tangent, HingeCosts, 0)
        if self.average == "active":
            triplets = ops.stop_gradient(sums[:, 1])
        else:
            mates = ClassMates.of(rows)
            triplets = mates.number_of_pairs(scores.dtype)
            triplets = triplets * count(mates.negatives, scores.dtype, axis=1)
        return scale_to_mean(sums[:, 0], ops.sum(triplets))
