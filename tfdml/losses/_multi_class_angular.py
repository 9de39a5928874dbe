"""Compute the angular loss of a batch of pairs."""

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._angular import AngularLoss
from tfdml.losses._multi_class_n_pair import first_of_pair


class MultiClassAngularLoss(AngularLoss):
    """Angular loss of a batch of pairs, with negatives from the other pairs.

    The batch holds N classes with two rows each, the first an anchor a_i, the second
    its positive p_i:

        mean over i of log(1 + sum over j != i of
                           e^(4 t^2 (a_i + p_i).p_j - 2 (1 + t^2) a_i.p_i))

    with t = tan(alpha). The value of an anchor is twice its cost, that of the other
    rows 0, so that the mean over the batch is the mean over the pairs. Order in the
    batch and classes of other sizes are as in `MultiClassNPairLoss`; all else is as in
    `AngularLoss`.

    Args:
        angle: alpha in degrees, above 0 and at most 89. 36 to 55 in the paper.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `angle` is out of range.

    Example:
        >>> loss = MultiClassAngularLoss(angle=45)
        >>> embeddings = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # log(1 + e^(0 - 4))
        0.0181

    Reference:
        Wang, Zhou, Wen, Liu and Lin, Deep Metric Learning with Angular Loss, ICCV
        2017, Eq. 8.
    """

    def members(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return that second rows are positives and negatives, of first rows."""
        first = first_of_pair(labels)
        return ops.logical_not(first), first
