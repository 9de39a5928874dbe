"""Compute the PNP loss: penalize the negatives that rank before positives."""

from typing import Any

from keras import ops

from tfdml._core.arguments import one_of, within
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._counts_before import counts_before, sigmoid_step
from tfdml.losses._ranges import scale_of_exponents

_VARIANTS = ("O", "I_u", "I_b", "D_s", "D_q")


class PNPLoss(PairLoss):
    """PNP loss: a function of the number of negatives that rank before each positive.

    With S the cosine similarities of an anchor to its positives P and its negatives N,
    and G(x) = 1 / (1 + e^(-x / tau)):

        R_i = sum over n in N of G(S_n - S_i)
        L_a = 1/|P| sum over i in P of f(R_i)

    The function says how much more a positive weighs that ranks behind many negatives:

        "O"    f = R                               as much as any other
        "I_u"  f = (1 + R) log(1 + R)              more, without a limit
        "I_b"  f = (b R - log(1 + b R)) / b^2      more, up to 1 / b
        "D_s"  f = log(1 + R)                      less
        "D_q"  f = 1 - 1 / (1 + R)^alpha           less still, and f is at most 1

    The order of the positives among each other does not count, as it does in average
    precision. The decreasing ones, D, leave alone a positive that is far away, such as
    one of another look of its class.

    The loss is the mean over the anchors that have positives. The others add 0; an
    anchor without negatives has the loss 0.

    Positives are visited one at a time, forward and backward: O(B^2 P) operations for
    P positives per anchor, O(B^2) memory.

    Args:
        variant: f, one of `"O"`, `"I_u"`, `"I_b"`, `"D_s"` and `"D_q"`. The paper finds
            the decreasing ones best.
        temperature: tau, from 1e-4 to 1e4, in units of cosine similarity.
        power: alpha of `"D_q"`, from 1 to 100; 4 in the authors' example.
        bend: b of `"I_b"`, from 0.01 to 100.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = PNPLoss("D_q", power=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (1 - 1/2 + 1 - 1 / 1.5) / 2
        0.4167

    Reference:
        Li et al., Rethinking the Optimization of Average Precision: Only Penalizing
        Negative Instances before Positive Ones is Enough, AAAI 2022, Eqs. 5 to 13. In
        the authors' code an anchor is a positive of itself.
    """

    def __init__(
        self,
        variant: str = "D_q",
        *,
        temperature: float = 0.01,
        power: float = 4.0,
        bend: float = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.variant: str = one_of("variant", variant, _VARIANTS)
        self.temperature: float = scale_of_exponents("temperature", temperature)
        self.power: float = within("power", power, 1, 100)
        self.bend: float = within("bend", bend, 0.01, 100)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        wide = at_least_float32(scores)
        before = counts_before(
            wide, positives, negatives, sigmoid_step(self.temperature)
        )
        number = count(positives, wide.dtype, axis=1)
        costs = ops.where(positives, self._cost(before), 0)
        values = ops.sum(costs, axis=1) / ops.maximum(number, 1)
        values = scale_to_mean(values, count(number > 0, values.dtype))
        return ops.cast(values, scores.dtype)

    def _cost(self, before: Tensor) -> Tensor:
        """Compute f(R)."""
        if self.variant == "I_u":
            return (1 + before) * ops.log1p(before)
        if self.variant == "I_b":
            bent = self.bend * before
            return (bent - ops.log1p(bent)) / self.bend**2
        if self.variant == "D_s":
            return ops.log1p(before)
        if self.variant == "D_q":
            return -ops.expm1(-self.power * ops.log1p(before))
        return before
