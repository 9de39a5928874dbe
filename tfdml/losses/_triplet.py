"""Triplet losses: over all triplets, semi-hard ones, or the hardest of each anchor."""

from typing import Any, Literal

import keras
from keras import ops

from tfdml._arguments import one_of
from tfdml.losses._distance_base import (
    Distance,
    DistanceLoss,
    at_least_float32,
    count,
    mean_over,
    weighted_hinges,
)
from tfdml.ops import (
    Tensor,
    hinge_weights,
    masked_max,
    masked_min,
    semi_hard_weights,
    softplus,
)


@keras.saving.register_keras_serializable(package="tfdml")
class TripletLoss(DistanceLoss):
    """Triplet loss over all triplets of the batch.

    With a an anchor, p its positives and n its negatives, over all valid (a, p, n):

        L = 1/T sum max(0, D_ap - D_an + margin)

    T is the number of valid triplets, or of those above 0. This is the expectation of
    the loss under uniform sampling of triplets. No triplet is listed: the count of the
    triplets above 0 that each pair is in gives value and gradient exactly, in O(B^2)
    memory (see `tfdml.ops`).

    An anchor without positives or without negatives adds 0; a batch without triplets
    has the loss 0. A triplet exactly at the margin adds 0 and has a zero gradient.

    Args:
        margin: By how much a negative must be farther than a positive, at least 0.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first, as in the paper.
        average: `"valid"`: T counts every triplet. `"active"`: T counts those above 0,
            so the gradient does not fade as training goes on.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = TripletLoss(margin=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 0.5) / 2
        0.25

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face
        Recognition and Clustering, CVPR 2015, Eq. 2.
    """

    def __init__(
        self,
        margin: float = 0.2,
        distance: Distance = "squared_euclidean",
        normalize: bool = True,
        average: Literal["valid", "active"] = "valid",
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "triplet_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            margin, distance, normalize, reduction=reduction, name=name, dtype=dtype
        )
        self.average: Literal["valid", "active"] = one_of(
            "average", average, ("valid", "active")
        )

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        weights = hinge_weights(scores, positives, negatives, self.margin)
        hinges, active = weighted_hinges(scores, positives, weights, self.margin)
        if self.average == "active":
            return mean_over(hinges, ops.sum(active))
        triplets = count(positives, scores) * count(negatives, scores)
        return mean_over(hinges, ops.sum(triplets))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "average": self.average}


@keras.saving.register_keras_serializable(package="tfdml")
class SemiHardTripletLoss(DistanceLoss):
    """Triplet loss of each positive pair with its semi-hard negative.

    The negative n of a pair (a, p) is the nearest with D_an > D_ap, or, where none is
    that far, the farthest of all. Over the P positive pairs, ordered:

        L = 1/P sum max(0, D_ap - D_an + margin)

    This is the rule that `tf.contrib` and tensorflow-addons made widespread; for that
    of `SemiHardWindowTripletLoss` other libraries use the same name.

    A pair without a negative adds 0, and a batch without positives has the loss 0.
    Where several negatives are equally far, they share the gradient. The loss jumps
    where D_an = D_ap, as at duplicates, and rounding decides there.

    Args:
        margin: By how much the negative must be farther, at least 0.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SemiHardTripletLoss(margin=1.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 1) / 2
        0.5

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face
        Recognition and Clustering, CVPR 2015, section 3.2. The fall back to the
        farthest negative is TensorFlow's.
    """

    def __init__(
        self,
        margin: float = 1.0,
        distance: Distance = "squared_euclidean",
        normalize: bool = True,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "semi_hard_triplet_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            margin, distance, normalize, reduction=reduction, name=name, dtype=dtype
        )

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        weights = semi_hard_weights(scores, positives, negatives, self.margin)
        hinges, _ = weighted_hinges(scores, positives, weights, self.margin)
        return mean_over(hinges, ops.sum(count(positives, scores)))


@keras.saving.register_keras_serializable(package="tfdml")
class SemiHardWindowTripletLoss(DistanceLoss):
    """Triplet loss over all semi-hard triplets, those inside the margin.

    Over the T triplets with D_ap < D_an < D_ap + margin:

        L = 1/T sum (D_ap - D_an + margin)

    A batch without such triplets has the loss 0. The loss jumps where D_an = D_ap, as
    at duplicates, and rounding decides there.

    Args:
        margin: Width of the window, at least 0.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = SemiHardWindowTripletLoss(margin=3.0)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # 2 - 4 + 3; the other ties
        1.0

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face
        Recognition and Clustering, CVPR 2015, Eq. 4 and section 3.2.
    """

    def __init__(
        self,
        margin: float = 0.2,
        distance: Distance = "squared_euclidean",
        normalize: bool = True,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "semi_hard_window_triplet_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            margin, distance, normalize, reduction=reduction, name=name, dtype=dtype
        )

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        scores = at_least_float32(scores)
        weights = hinge_weights(scores, positives, negatives, self.margin, window=True)
        hinges, active = weighted_hinges(scores, positives, weights, self.margin)
        return mean_over(hinges, ops.sum(active))


@keras.saving.register_keras_serializable(package="tfdml")
class HardTripletLoss(DistanceLoss):
    """Triplet loss of the farthest positive and the nearest negative of each anchor.

    Over the A anchors that have both:

        L = 1/A sum max(0, max_p D_ap - min_n D_an + margin)

    and with `soft=True` log(1 + exp(.)) instead of max(0, .), which never stops
    pulling; the paper then sets the margin to 0. Anchors without a positive or without
    a negative add 0 and do not count. On ties the gradient is shared.

    Args:
        margin: By how much the negative must be farther, at least 0.
        soft: Whether the hinge is replaced by the soft plus.
        distance: D: `"squared_euclidean"`, `"euclidean"`, or `"cosine"`, which is
            1 - cosine similarity.
        normalize: Whether embeddings are scaled to unit length first. The paper does
            not, and uses `"euclidean"`.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = HardTripletLoss(margin=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 0.5) / 2
        0.25

    Reference:
        Hermans, Beyer and Leibe, In Defense of the Triplet Loss for Person
        Re-Identification, arXiv 1703.07737, 2017, Eq. 5.
    """

    def __init__(
        self,
        margin: float = 0.2,
        soft: bool = False,
        distance: Distance = "squared_euclidean",
        normalize: bool = True,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "hard_triplet_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            margin, distance, normalize, reduction=reduction, name=name, dtype=dtype
        )
        self.soft: bool = bool(soft)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        losses, complete = self.anchor_losses(scores, positives, negatives)
        return mean_over(losses, ops.sum(ops.cast(complete, losses.dtype)))

    def anchor_losses(
        self, scores: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of each anchor, and whether it has both kinds, `[A]` each.

        Args and shapes are those of `pair_loss`; nothing is averaged.
        """
        scores = at_least_float32(scores)
        complete = ops.logical_and(ops.any(positives, 1), ops.any(negatives, 1))
        gap = masked_max(scores, positives) - masked_min(scores, negatives)
        losses = (softplus if self.soft else ops.relu)(gap + self.margin)
        return ops.where(complete, losses, ops.zeros_like(losses)), complete

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "soft": self.soft}
