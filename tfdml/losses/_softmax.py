"""Losses with a softmax over all other items: NCA, SupCon, NT-Xent."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import above_zero
from tfdml.losses._base import PairLoss
from tfdml.ops import (
    Tensor,
    anchors_per_pair,
    cosine_similarities,
    masked_logsumexp,
    masked_mean,
    softplus,
    squared_distances,
)


@keras.saving.register_keras_serializable(package="tfdml")
class NCALoss(PairLoss):
    """Neighbourhood component analysis: the chance of a neighbour of the own class.

    Let an anchor i choose a neighbour k with a probability in proportion to e^(s S_ik),
    s a scale and S the cosine similarity. The loss of the anchor is minus the logarithm
    of the probability that the neighbour is of its class:

        -log(sum over positives k of e^(s S_ik) / sum over k != i of e^(s S_ik))

    The published value is the sum over anchors (`reduction="sum"`); the default is the
    mean. An anchor without positives adds 0, and so does one without negatives.

    Eq. 1 of Wang et al. lacks the minus sign and lets k = i; NCA itself does neither.
    Goldberger et al. have minus the squared Euclidean distance in place of S, see
    `euclidean`; on unit vectors that is this loss with twice the scale.

    Args:
        scale: s, above 0. 1 in the papers; on cosine similarities larger ones separate
            better.
        euclidean: Whether S is minus the squared Euclidean distance of the embeddings
            as they are.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `scale` is out of range.

    Example:
        >>> loss = NCALoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # (log(1 + e) + log 2) / 3
        0.6688

    Reference:
        Goldberger, Roweis, Hinton and Salakhutdinov, Neighbourhood Components
        Analysis, NIPS 2004, with the logarithm of their Eq. 6; on similarities as in
        Wang et al., Multi-Similarity Loss with General Pair Weighting, CVPR 2019.
    """

    def __init__(
        self,
        scale: float = 1.0,
        *,
        euclidean: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "nca_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.scale: float = above_zero("scale", scale)
        self.euclidean: bool = euclidean

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute similarities `[A, G]`."""
        if self.euclidean:
            return -squared_distances(anchors, gallery)
        return cosine_similarities(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        right = masked_logsumexp(self.scale * scores, positives)
        wrong = masked_logsumexp(self.scale * scores, negatives)
        # -log(e^r / (e^r + e^w)) = log(1 + e^(w - r)), exact where it is small.
        found = ops.any(positives, axis=1)
        loss = softplus(wrong - ops.where(found, right, 0))
        return ops.where(found, loss, 0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "scale": self.scale,
            "euclidean": self.euclidean,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class SupervisedContrastiveLoss(PairLoss):
    """Supervised contrastive loss: every positive against all other items.

    With S the cosine similarity, tau a temperature and P the positives of anchor i,

        (1 / |P|) sum over p in P of
            -log(e^(S_ip / tau) / sum over k != i of e^(S_ik / tau))

    (the form with the sum outside of the logarithm), and the loss is the mean over the
    anchors. The other positives are in the denominator too, so the loss does not reach
    0 with two or more positives. An anchor without positives adds 0; it counts in the
    mean. An anchor without negatives still evens out its positives.

    Args:
        temperature: tau, above 0.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "supervised_contrastive_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.temperature: float = above_zero("temperature", temperature)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        logits = scores / self.temperature
        everything = masked_logsumexp(logits, ops.logical_or(positives, negatives))
        found = ops.any(positives, axis=1)
        loss = ops.where(found, everything, 0) - masked_mean(logits, positives)
        return ops.where(found, loss, 0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable(package="tfdml")
class NTXentLoss(PairLoss):
    """NT-Xent: normalised, temperature-scaled cross-entropy of each positive pair.

    With S the cosine similarity and tau a temperature, a positive pair (a, p) costs

        -log(e^(S_ap / tau) / (e^(S_ap / tau) + sum over negatives n of e^(S_an / tau)))

    and the loss is the mean over all ordered positive pairs. The value of an anchor is
    the sum over its pairs, times (anchors / pairs), so that the mean over the batch is
    the loss. With two rows a class this is SimCLR's loss. With more rows the other
    positives stay out of the denominator (`SupervisedContrastiveLoss` has them in).

    An anchor without positives or without negatives adds 0.

    Args:
        temperature: tau, above 0. 0.1 to 0.5 in the paper.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "nt_xent_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.temperature: float = above_zero("temperature", temperature)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        return one_against_negatives(scores / self.temperature, positives, negatives)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "temperature": self.temperature}


def one_against_negatives(
    logits: Tensor, positives: Tensor, negatives: Tensor
) -> Tensor:
    """Cross-entropy of each positive against the negatives of its anchor.

    Args:
        logits: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.

    Returns:
        Tensor `[A]`, the sum over the pairs of an anchor times (anchors / pairs): its
        mean over the anchors is the mean over the pairs.
    """
    rivals = ops.expand_dims(masked_logsumexp(logits, negatives), 1)
    # Masked before the difference: what is no positive may be any number.
    values = softplus(rivals - ops.where(positives, logits, 0))
    values = ops.where(positives, values, 0)
    return ops.sum(values, axis=1) * anchors_per_pair(positives, values.dtype)
