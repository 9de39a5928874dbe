"""Compute the SupAP loss: an upper bound of 1 - average precision."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._hierarchical_precision import lost_precision, steep_step
from tfdml.losses._ranges import scale_of_exponents


class SupAPLoss(PairLoss):
    """SupAP loss: 1 - average precision, with ranks that negatives raise ever more.

    With S the cosine similarities of an anchor to its positives P and its negatives N,
    and G(x) = 1 / (1 + e^(-x / tau)):

        L_a = 1 - 1/|P| sum over i in P of R_i / (R_i + sum over n in N of H(S_n - S_i))
        R_i = 1 + number of j in P, j != i, with S_j >= S_i
        H(x) = G(x)                              for x <= 0
               G(x) + jump                       for 0 < x <= delta
               G(delta) + jump + rho (x - delta) for x > delta

    and the loss is the mean over the anchors that have positives. The others add 0; an
    anchor without negatives has the loss 0. With jump = 1/2, H is at least the step
    from 0 to 1, so the loss is at least 1 - average precision, and a negative far
    ahead of a positive keeps a gradient, which vanishes in Smooth-AP.

    The value jumps where a candidate passes a positive. The gradient is that of the
    function between these jumps: no gradient passes through R.

    Positives are visited one at a time, forward and backward: O(B^2 P) operations for
    P positives per anchor, O(B^2) memory.

    Args:
        temperature: tau, from 1e-4 to 1e4, in units of cosine similarity.
        slope: rho, from 0 to 1e4.
        delta: From where on H is a straight line, from 0 to 2.
        jump: By how much H jumps at 0, from 0 to 1. 0 in the authors' settings for
            iNaturalist.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SupAPLoss(slope=2.0, delta=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # H(1) = 2.5 and H(0) = 0.5
        0.524

    Reference:
        Ramzi et al., Robust and Decomposable Average Precision for Image Retrieval,
        NeurIPS 2021. The formula is that of the authors' code, whose settings have 1.44
        where this has G(delta) + jump = 1.49, and in which an anchor is a positive of
        itself.
    """

    def __init__(
        self,
        temperature: float = 0.01,
        *,
        slope: float = 100.0,
        delta: float = 0.05,
        jump: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.temperature: float = scale_of_exponents("temperature", temperature)
        self.slope: float = at_least_zero("slope", slope, 1e4)
        self.delta: float = at_least_zero("delta", delta, 2)
        self.jump: float = at_least_zero("jump", jump, 1)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        wide = at_least_float32(scores)
        step = steep_step(self.temperature, self.jump, self.slope, self.delta)
        relevant = ops.ones_like(wide[:, :1])
        values = lost_precision(wide, [negatives, positives], [relevant], step)
        has_positive = ops.any(positives, axis=1)
        values = scale_to_mean(values, count(has_positive, values.dtype))
        return ops.cast(values, scores.dtype)
