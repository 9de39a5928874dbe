"""Compute the NT-Xent loss."""

from typing import Any

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._costs import softmax_costs
from tfdml.losses._ranges import scale_of_exponents


class NTXentLoss(PairLoss):
    """NT-Xent: normalized, temperature-scaled cross-entropy of each positive pair.

    With S the cosine similarity and tau a temperature, a positive pair (a, p) costs

        -log(e^(S_ap / tau) / (e^(S_ap / tau) + sum over negatives n of e^(S_an / tau)))

    and the loss is the mean over all ordered positive pairs. The value of an anchor is
    the sum over its pairs, times (anchors / pairs), so that the mean over the batch is
    the loss. With two rows per class this is SimCLR's loss. With more rows the other
    positives are not in the denominator (`SupervisedContrastiveLoss` includes them).

    An anchor without positives or without negatives adds 0.

    Args:
        temperature: tau, from 1e-4 to 1e4. 0.1 to 0.5 in the paper.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `temperature` is out of range.

    Example:
        >>> loss = NTXentLoss(temperature=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (log(1 + e) + log 2) / 2
        1.0032

    Reference:
        Chen, Kornblith, Norouzi and Hinton, A Simple Framework for Contrastive
        Learning of Visual Representations, ICML 2020, Eq. 1.
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature: float = scale_of_exponents("temperature", temperature)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        return softmax_costs(scores / self.temperature, positives, negatives)
