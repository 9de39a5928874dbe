"""Compute the balanced contrastive loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfdml._core.arguments import at_least_zero
from tfdml.batch_designs import balanced_eta
from tfdml.losses._ranges import LARGEST_WEIGHT
from tfdml.losses._weighted_contrastive import WeightedContrastiveLoss


class BalancedContrastiveLoss(WeightedContrastiveLoss):
    """Balanced contrastive loss: the weighted one with eta on the negative pairs.

    For every anchor, the negatives of each other class have lambda / (L - 1) times the
    weight of its positives, whatever the sizes of the classes: the loss is the mean
    over all ordered pairs (i, j) of the batch of

        W_ij^delta D_ij^2                         for positives
        W_ij^delta eta_ij max(0, margin - D_ij)^2    for negatives

    with eta_ij = (lambda / (L - 1)) (N_yi - 1) / N_yj, L the number of classes that the
    design can draw (without a design: of classes with images) and N_c the number of
    images of class c. An anchor whose class has one image has eta = 0. Without a design
    W is 1. All else is as in `WeightedContrastiveLoss`.

    Args:
        class_counts: Number of training images of each class: a mapping from label to
            number, or a sequence with the number of label 0, 1, 2, ...
        images_per_class: m, at least 2. With `None`, W is 1.
        classes_per_batch: n, at least 2. Given if and only if m is.
        positive_probability: p, from 0 to 1, for batches of pairs of the p-random
            design. Not given if m and n are.
        balance: lambda, from 0 to 1e6: the weight of the negatives of all other classes
            relative to the positives.
        margin: The distance that negatives should have, above 0.
        power: delta, as in `WeightedContrastiveLoss`. It does not apply to eta.
        normalize: Whether embeddings are scaled to unit length first.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = BalancedContrastiveLoss({7: 30, 9: 10}, balance=2.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # eta is 5.8 and 0.6
        1.7333

    Reference:
        Hong, Park and Kim, Deep Metric Learning via Weighted Contrastive Loss, Eqs. 16
        and 23.
    """

    def __init__(
        self,
        class_counts: Mapping[int, int] | Sequence[int] | np.ndarray,
        *,
        balance: float = 256.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(class_counts, **kwargs)
        self.balance: float = at_least_zero("balance", balance, LARGEST_WEIGHT)

    def _class_weights(self) -> np.ndarray:
        anchor, item = balanced_eta(
            self._counts.numbers, self.balance, self._smallest_class()
        )
        eta = np.stack([np.ones_like(anchor), anchor, item], axis=1)
        return super()._class_weights() * eta
