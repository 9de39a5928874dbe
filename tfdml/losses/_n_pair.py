"""Compute the N-pair loss over all positive pairs."""

from typing import Any

from keras import ops

from tfdml._core.arguments import at_least_zero, boolean
from tfdml._core.tensors import Tensor, products
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import softmax_costs
from tfdml.losses._ranges import LARGEST_WEIGHT
from tfdml.ops import unit_rows


class NPairLoss(PairLoss):
    """N-pair loss over all positive pairs: a softmax of one positive and the negatives.

    With S the dot product of two embeddings, a positive pair (a, p) costs

        log(1 + sum over negatives n of a of e^(S_an - S_ap))

    which is -log(e^S_ap / (e^S_ap + sum_n e^S_an)), and the loss is the mean over all
    ordered positive pairs of the batch. The value of an anchor is the sum over its
    pairs, times (anchors / pairs), so that the mean over the batch is the loss.
    `l2_weight` times the mean squared length of the embeddings is added to it.

    An anchor without positives or without negatives adds 0 (but its length counts).
    The paper does not normalize the embeddings, and limits their length by the L2 term.
    Components beyond 1e12 in size are refused, and make the loss NaN in a compiled
    function. On unit vectors (`normalize=True`) the loss cannot come near 0: for these
    `NTXentLoss` divides by a temperature.

    Args:
        l2_weight: Weight of the mean squared length, from 0 to 1e6. 0.001 to 0.01 in
            published code.
        normalize: Whether similarities are those of unit vectors.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `l2_weight` is out of range.

    Example:
        >>> loss = NPairLoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # log(1 + e), log(1 + e^0)
        1.0032

    Reference:
        Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective,
        NIPS 2016, Eq. 3.
    """

    is_pairwise = True

    def __init__(
        self, l2_weight: float = 0.0, *, normalize: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.l2_weight: float = at_least_zero("l2_weight", l2_weight, LARGEST_WEIGHT)
        self.normalize: bool = boolean("normalize", normalize)
        if self.l2_weight:
            self.is_pairwise = False  # scores do not tell the lengths

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch with itself and add the squared length of each row."""
        return self.with_lengths(super().call(labels, embeddings), embeddings)

    def with_lengths(self, values: Tensor, embeddings: Tensor) -> Tensor:
        """Add the weighted squared length of each row to values `[B]`."""
        if not self.l2_weight:
            return values
        squares = ops.square(embeddings)
        return values + self.l2_weight * ops.sum(squares, axis=1)

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute dot products `[A, G]`."""
        if self.normalize:
            return products(unit_rows(anchors), unit_rows(gallery))
        return products(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        return softmax_costs(scores, positives, negatives)
