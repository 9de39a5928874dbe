"""Compute the pairwise sigmoid loss, with a fixed scale and bias."""

from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._ranges import scale_of_exponents, threshold_of_scores
from tfdml.ops import softplus


class PairwiseSigmoidLoss(PairLoss):
    """Pairwise sigmoid (SigLIP): each pair is classified as positive or negative.

        L_i = sum over j != i of log(1 + e^(-z_ij (t S_ij + b)))

    with S the cosine similarity, z = 1 for a positive pair and -1 for a negative, t a
    scale and b a bias; and the loss is the mean over the anchors. No pair is compared
    with others, as in a softmax. The paper compares images with texts, of which each
    has one; here every item of the batch is compared with all others, and all items of
    its class are positives.

    The sum grows with the batch. An anchor without positives still pushes its negatives
    away, and one without negatives pulls its positives near.

    In the paper t and b are learned, as `LearnedPairwiseSigmoidLoss` does. This loss
    has them fixed, which needs no layer and also works with a memory of embeddings.

    Args:
        scale: t, from 1e-4 to 1e4.
        bias: b, from -1e12 to 1e12: a pair is taken for positive where its similarity
            is above -b / t.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = PairwiseSigmoidLoss(scale=1.0, bias=0.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7], embeddings)), 4)  # log 2
        0.6931

    Reference:
        Zhai, Mustafa, Kolesnikov and Beyer, Sigmoid Loss for Language Image
        Pre-Training, ICCV 2023.
    """

    def __init__(
        self, scale: float = 10.0, *, bias: float = -10.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.scale: float = scale_of_exponents("scale", scale)
        self.bias: float = threshold_of_scores("bias", bias)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        return sigmoid_costs(self.scale * scores + self.bias, positives, negatives)


def sigmoid_costs(logits: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Sum log(1 + e^-logit) of positives and log(1 + e^logit) of negatives, `[A]`."""
    costs = softplus(ops.where(positives, -logits, logits))
    pairs = ops.logical_or(positives, negatives)
    return ops.sum(ops.where(pairs, costs, 0), axis=1)
