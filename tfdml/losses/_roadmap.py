"""Compute the ROADMAP loss: SupAP, calibrated over batches."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, within
from tfdml._core.tensors import Tensor, at_least_float32, count
from tfdml.losses._costs import scale_to_mean
from tfdml.losses._ranges import LARGEST_WEIGHT
from tfdml.losses._sup_ap import SupAPLoss


class ROADMAPLoss(SupAPLoss):
    """ROADMAP loss: SupAP, and a term that gives all batches one scale of similarity.

    With S the cosine similarities of all positive pairs P and negative pairs N of a
    batch, and [x]+ = max(0, x):

        L = SupAP + lambda (mean over P of [alpha - S]+  +  mean over N of [S - beta]+)

    Each mean is over the pairs above 0 alone, and 0 without any. Average precision
    compares scores with each other, within a batch. The second term compares them with
    fixed numbers, so that a batch can be ranked well only where it also fits the
    others: the average precision of batches is then nearer to that of the whole set.
    An anchor without positives still pushes its near negatives away.

    Args:
        temperature: tau of `SupAPLoss`.
        slope: rho of `SupAPLoss`.
        delta: delta of `SupAPLoss`.
        jump: That of `SupAPLoss`.
        calibration_weight: lambda, from 0 to 1e6.
        positive_threshold: alpha, the similarity that positives should have at least,
            from -1 to 1.
        negative_threshold: beta, the similarity that negatives should have at most,
            from -1 to 1.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = ROADMAPLoss(slope=2.0, delta=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # 0.524 + 0.9 + 0.4
        1.824

    Reference:
        Ramzi et al., Robust and Decomposable Average Precision for Image Retrieval,
        NeurIPS 2021. The formula and the defaults are those of the authors' code.
    """

    def __init__(
        self,
        temperature: float = 0.01,
        *,
        slope: float = 100.0,
        delta: float = 0.05,
        jump: float = 0.5,
        calibration_weight: float = 1.0,
        positive_threshold: float = 0.9,
        negative_threshold: float = 0.6,
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, slope=slope, delta=delta, jump=jump, **kwargs)
        self.calibration_weight: float = at_least_zero(
            "calibration_weight", calibration_weight, LARGEST_WEIGHT
        )
        self.positive_threshold: float = within(
            "positive_threshold", positive_threshold, -1, 1
        )
        self.negative_threshold: float = within(
            "negative_threshold", negative_threshold, -1, 1
        )

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        values = super().pair_loss(scores, positives, negatives)
        wide = at_least_float32(scores)
        pulled = _share(self.positive_threshold - wide, positives)
        pushed = _share(wide - self.negative_threshold, negatives)
        calibration = self.calibration_weight * (pulled + pushed)
        return values + ops.cast(calibration, scores.dtype)


def _share(costs: Tensor, mask: Tensor) -> Tensor:
    """Sum the costs above 0 of each anchor, scaled to the mean over all of them."""
    # "Not at most" instead of "above": a NaN counts, so that it shows.
    counts = ops.logical_and(mask, ops.logical_not(costs <= 0))
    sums = ops.sum(ops.where(counts, costs, 0), axis=1)
    return scale_to_mean(sums, count(counts, costs.dtype))
