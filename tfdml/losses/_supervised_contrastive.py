"""Compute the supervised contrastive loss."""

from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import scale_of_exponents
from tfdml.ops import masked_logsumexp, masked_mean


class SupervisedContrastiveLoss(PairLoss):
    """Supervised contrastive loss: every positive against all other items.

    With S the cosine similarity, tau a temperature and P the positives of anchor i,

        (1 / |P|) sum over p in P of
            -log(e^(S_ip / tau) / sum over k != i of e^(S_ik / tau))

    (the form with the sum outside of the logarithm), and the loss is the mean over the
    anchors. The other positives are in the denominator too, so the loss does not reach
    0 with two or more positives. An anchor without positives adds 0; it counts in the
    mean. An anchor without negatives still equalizes the similarities of its positives.

    Args:
        temperature: tau, from 1e-4 to 1e4.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is out of range.

    Example:
        >>> loss = SupervisedContrastiveLoss(temperature=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (log(1 + e) + log 2) / 3
        0.6688

    Reference:
        Khosla et al., Supervised Contrastive Learning, NeurIPS 2020, Eq. 2 (L_out),
        without the factor tau / tau_base of the published code.
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature: float = scale_of_exponents("temperature", temperature)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        logits = scores / self.temperature
        total = masked_logsumexp(logits, ops.logical_or(positives, negatives))
        has_positive = ops.any(positives, axis=1)
        loss = ops.where(has_positive, total, 0) - masked_mean(logits, positives)
        return ops.where(has_positive, loss, 0)
