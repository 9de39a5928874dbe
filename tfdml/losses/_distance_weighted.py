"""Losses with distance weighted negatives, as expectations: nothing is sampled."""

from abc import abstractmethod
from typing import Any, Literal

import keras
from keras import ops

from tfdml.losses._base import PairLoss
from tfdml.losses._distance_base import (
    Distance,
    DistanceLoss,
    at_least_float32,
    count,
    mean_over,
    weighted_hinges,
)
from tfdml.losses._margin import MarginLoss, side_hinges
from tfdml.ops import Tensor, hinge_weights, label_masks, masked_logsumexp


def negative_probabilities(
    squared: Tensor,
    negatives: Tensor,
    dimension: int | Tensor,
    cutoff: float = 0.5,
    nonzero_loss_cutoff: float | None = 1.4,
) -> Tensor:
    """Return how probable each negative is under distance weighted sampling.

    Distances d of random points on the unit sphere of R^dimension have the density
    q(d) ~ d^(dimension-2) (1 - d^2/4)^((dimension-3)/2), nearly all of it around
    sqrt(2). A negative is drawn with a probability proportional to 1/q(max(d, cutoff)),
    which spreads the draws over the distances.

    Args:
        squared: Squared Euclidean distances d^2 of unit rows, `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        dimension: Number of components of an embedding.
        cutoff: Distance below which negatives are no more probable.
        nonzero_loss_cutoff: Negatives at this distance or farther are not drawn, as
            they have no loss anyway; None draws them. An anchor whose negatives are all
            that far draws each with equal probability.

    Returns:
        Constants `[A, G]` in 0 to 1; a row sums to 1, or to 0 without negatives.

    Reference:
        Wu, Manmatha, Smola and Kraehenbuehl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 1 and 2.
    """
    squared = ops.stop_gradient(squared)
    dimension = ops.cast(dimension, squared.dtype)
    clipped = ops.maximum(squared, cutoff**2)
    # 1 - d^2/4 is 0 for opposite rows, and may round below.
    rest = ops.log(ops.maximum(1 - clipped / 4, 1e-8))
    logits = (2 - dimension) / 2 * ops.log(clipped) - (dimension - 3) / 2 * rest
    drawn = negatives
    if nonzero_loss_cutoff is not None:
        near = ops.logical_and(negatives, squared < nonzero_loss_cutoff**2)
        found = ops.any(near, axis=1, keepdims=True)
        drawn = ops.where(found, near, negatives)
        logits = ops.where(found, logits, 0)
    total = ops.expand_dims(masked_logsumexp(logits, drawn), 1)
    # Masked before exp: a row without negatives has the total -infinity.
    shifted = ops.where(drawn, logits - total, -float("inf"))
    return ops.stop_gradient(ops.exp(shifted))


class _DistanceWeighted(PairLoss):
    """Expectation over distance weighted negatives. Mixed into a loss on distances."""

    cutoff: float
    nonzero_loss_cutoff: float | None
    dimension: int | None

    def _set_sampling(
        self,
        cutoff: float,
        nonzero_loss_cutoff: float | None,
        dimension: int | None,
    ) -> None:
        if not 0 < cutoff < 2:
            raise ValueError(
                f"`cutoff` must be above 0 and below 2. Received: cutoff={cutoff}."
            )
        if nonzero_loss_cutoff is not None and not nonzero_loss_cutoff > cutoff:
            raise ValueError(
                "`nonzero_loss_cutoff` must be above `cutoff`, or None. Received: "
                f"nonzero_loss_cutoff={nonzero_loss_cutoff}, cutoff={cutoff}."
            )
        if dimension is not None and (dimension != int(dimension) or dimension < 2):
            raise ValueError(
                "`dimension` must be a whole number of at least 2, or None. "
                f"Received: dimension={dimension}."
            )
        self.cutoff = float(cutoff)
        self.nonzero_loss_cutoff = nonzero_loss_cutoff
        self.dimension = dimension

    @property
    def is_pairwise(self) -> bool:
        """Whether `pair_loss` is the whole loss: with a `dimension` it is."""
        return self.dimension is not None

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch with itself, `[B]`."""
        # A tensor where the shape of the embeddings is unknown.
        known = self.dimension is not None
        dimension = self.dimension if known else ops.shape(embeddings)[1]
        scores = self.scores(embeddings, embeddings)
        return self._expected_loss(scores, *label_masks(labels), dimension)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`.

        Raises:
            ValueError: The constructor got no `dimension`, which scores do not tell.
        """
        if self.dimension is None:
            raise ValueError(
                "`dimension`, the number of components of an embedding, must be given "
                "to the constructor where only scores are known. Received: None."
            )
        return self._expected_loss(scores, positives, negatives, self.dimension)

    @abstractmethod
    def _expected_loss(
        self,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int | Tensor,
    ) -> Tensor:
        """Compute the share of each anchor, `[A]`."""

    def _probabilities(
        self, squared: Tensor, negatives: Tensor, dimension: int | Tensor
    ) -> Tensor:
        return negative_probabilities(
            squared, negatives, dimension, self.cutoff, self.nonzero_loss_cutoff
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "cutoff": self.cutoff,
            "nonzero_loss_cutoff": self.nonzero_loss_cutoff,
            "dimension": self.dimension,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class DistanceWeightedTripletLoss(_DistanceWeighted, DistanceLoss):
    """Triplet loss in expectation over distance weighted negatives.

    With q(n | a) the probability of a negative (see `negative_probabilities`), over
    the P positive pairs, ordered, whose anchor has a negative:

        L = 1/P sum_(a,p) sum_n q(n | a) max(0, D_ap - D_an + margin)

    The paper draws one negative for each positive pair; this is the mean of all draws,
    with the same expected gradient and no noise. No gradient passes through q.

    An anchor without positives or without negatives adds 0.

    Args:
        margin: By how much a negative must be farther than a positive, at least 0.
        distance: D of the hinge: `"squared_euclidean"`, `"euclidean"` or `"cosine"`,
            which is 1 - cosine similarity, all of unit rows.
        cutoff: Euclidean distance below which negatives are no more probable; above 0.
        nonzero_loss_cutoff: Negatives at this Euclidean distance or farther are not
            drawn. None draws them. An anchor with no nearer negative draws all alike.
        dimension: Number of components of an embedding. Needed only where a loss sees
            no embeddings, as when `pair_loss` is called.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = DistanceWeightedTripletLoss(margin=0.5)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # (0 + 0.5) / 2
        0.25

    Reference:
        Wu, Manmatha, Smola and Kraehenbuehl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 2 and section 4.1.
    """

    def __init__(
        self,
        margin: float = 0.2,
        distance: Distance = "squared_euclidean",
        cutoff: float = 0.5,
        nonzero_loss_cutoff: float | None = 1.4,
        dimension: int | None = None,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "distance_weighted_triplet_loss",
        dtype: str | None = None,
    ) -> None:
        DistanceLoss.__init__(
            self, margin, distance, True, reduction=reduction, name=name, dtype=dtype
        )
        self._set_sampling(cutoff, nonzero_loss_cutoff, dimension)

    def _expected_loss(
        self,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int | Tensor,
    ) -> Tensor:
        scores = at_least_float32(scores)
        squared = {
            "squared_euclidean": scores,
            "euclidean": ops.square(scores),
            "cosine": 2 * scores,
        }[self.distance]
        shares = self._probabilities(squared, negatives, dimension)
        weights = hinge_weights(
            scores, positives, negatives, self.margin, shares=shares
        )
        hinges, _ = weighted_hinges(scores, positives, weights, self.margin)
        return mean_over(hinges, _pairs(positives, negatives, hinges))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["normalize"]
        return config


@keras.saving.register_keras_serializable(package="tfdml")
class DistanceWeightedMarginLoss(_DistanceWeighted, MarginLoss):
    """Margin loss in expectation over distance weighted negatives.

    With q(n | a) the probability of a negative (see `negative_probabilities`), P_a the
    number of positives of anchor a, and D the Euclidean distance of unit rows:

        L = 1/T sum_a (sum_p max(0, D_ap - beta + alpha)
                       + P_a sum_n q(n | a) max(0, alpha + beta - D_an))

    T is the expected number of terms above 0, or with `average="valid"` the number of
    positive pairs. The paper draws one negative for each positive pair; this is the
    mean of all draws. (With `"active"` the authors divide each draw's sum by its own
    count; here the two expectations are divided.) No gradient passes through q.

    An anchor without positives or without negatives adds 0.

    Args:
        alpha: Margin on each side of the boundary, at least 0, a Euclidean distance.
        beta: Boundary, at least 0.
        average: `"active"` or `"valid"`, see above.
        cutoff: Euclidean distance below which negatives are no more probable; above 0.
        nonzero_loss_cutoff: Negatives at this Euclidean distance or farther are not
            drawn. None draws them. An anchor with no nearer negative draws all alike.
        dimension: Number of components of an embedding. Needed only where a loss sees
            no embeddings, as when `pair_loss` is called.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> loss = DistanceWeightedMarginLoss(alpha=0.2, beta=1.2)
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 3)  # sqrt(2) - 1.2 + 0.2
        0.414

    Reference:
        Wu, Manmatha, Smola and Kraehenbuehl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 2 and 4.
    """

    def __init__(
        self,
        alpha: float = 0.2,
        beta: float = 1.2,
        average: Literal["active", "valid"] = "active",
        cutoff: float = 0.5,
        nonzero_loss_cutoff: float | None = 1.4,
        dimension: int | None = None,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "distance_weighted_margin_loss",
        dtype: str | None = None,
    ) -> None:
        MarginLoss.__init__(
            self, alpha, beta, average, reduction=reduction, name=name, dtype=dtype
        )
        self._set_sampling(cutoff, nonzero_loss_cutoff, dimension)

    def _expected_loss(
        self,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int | Tensor,
    ) -> Tensor:
        scores = at_least_float32(scores)
        squared = ops.square(scores + self.beta)
        shares = self._probabilities(squared, negatives, dimension)
        complete = ops.logical_and(ops.any(positives, 1), ops.any(negatives, 1))
        positives = ops.logical_and(positives, ops.expand_dims(complete, 1))
        draws = ops.expand_dims(count(positives, scores), 1) * shares
        near, far = side_hinges(scores, positives, negatives, self.alpha)
        if self.average == "active":
            active = ops.cast(near > 0, draws.dtype) + draws * ops.cast(
                far > 0, draws.dtype
            )
            terms = ops.sum(active)
        else:
            terms = _pairs(positives, negatives, scores)
        return mean_over(ops.sum(near + draws * far, axis=1), terms)


def _pairs(positives: Tensor, negatives: Tensor, like: Tensor) -> Tensor:
    """Count the positive pairs whose anchor has a negative."""
    pairs = ops.where(ops.any(negatives, axis=1), count(positives, like), 0)
    return ops.sum(pairs)
