"""Define the base class of the losses over distance-weighted negatives."""

from abc import abstractmethod
from typing import Any

from keras import ops

from tfdml._core.tensors import Tensor, count
from tfdml.losses._base import PairLoss
from tfdml.ops import label_masks, masked_max


def negative_probabilities(
    squared: Tensor,
    negatives: Tensor,
    dimension: int | Tensor,
    cutoff: float = 0.5,
    nonzero_loss_cutoff: float | None = 1.4,
) -> Tensor:
    """Compute the probability of each negative under distance-weighted sampling.

    Distances d of random points on the unit sphere of R^dimension have the density
    q(d) ~ d^(dimension-2) (1 - d^2/4)^((dimension-3)/2), concentrated around sqrt(2). A
    negative is drawn with a probability proportional to 1/q(max(d, cutoff)), which
    spreads the draws over the distances.

    Args:
        squared: Squared Euclidean distances d^2 of unit rows, `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        dimension: Number of components of an embedding.
        cutoff: Distance below which the probability does not grow further.
        nonzero_loss_cutoff: Negatives at this distance or farther are not drawn, as
            they have no loss; None draws them. An anchor without a nearer negative
            draws each with equal probability.

    Returns:
        Constants `[A, G]` in 0 to 1; a row sums to 1, or to 0 without negatives.

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
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
        near = ops.logical_and(negatives, squared < min(nonzero_loss_cutoff, 3.0) ** 2)
        has_near = ops.any(near, axis=1, keepdims=True)
        drawn = ops.where(has_near, near, negatives)
        logits = ops.where(has_near, logits, 0)
    largest = ops.expand_dims(masked_max(logits, drawn), 1)
    shares = ops.exp(ops.where(drawn, logits - largest, -float("inf")))
    # Divided by their sum, shares of large logits still add up to 1.
    total = ops.sum(shares, axis=1, keepdims=True)
    return ops.stop_gradient(shares / ops.where(ops.equal(total, 0), 1, total))


def check_cutoffs(cutoff: float, nonzero_loss_cutoff: float | None) -> None:
    """Raise a ValueError unless distances between the cutoffs can be drawn."""
    if not 0.001 <= cutoff < 2:
        raise ValueError(
            f"`cutoff` must be at least 0.001 and below 2. Received: cutoff={cutoff}."
        )
    if nonzero_loss_cutoff is not None and not nonzero_loss_cutoff > cutoff:
        raise ValueError(
            "`nonzero_loss_cutoff` must be above `cutoff`, or None. Received: "
            f"nonzero_loss_cutoff={nonzero_loss_cutoff}, cutoff={cutoff}."
        )


class _DistanceWeightedLoss(PairLoss):
    """The expectation of a loss over distance-weighted negatives.

    A subclass writes `expected_loss`, which also knows the dimension of the embeddings.
    """

    def __init__(
        self,
        *,
        cutoff: float = 0.5,
        nonzero_loss_cutoff: float | None = 1.4,
        dimension: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_cutoffs(cutoff, nonzero_loss_cutoff)
        if dimension is not None and (dimension != int(dimension) or dimension < 2):
            raise ValueError(
                "`dimension` must be a whole number of at least 2, or None. "
                f"Received: dimension={dimension}."
            )
        self.cutoff: float = float(cutoff)
        self.nonzero_loss_cutoff: float | None = nonzero_loss_cutoff
        self.dimension: int | None = dimension
        # Scores alone do not tell the dimension of the embeddings.
        self.is_pairwise = dimension is not None

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch with itself, `[B]`."""
        # A tensor where the shape of the embeddings is unknown.
        dimension = self.dimension or ops.shape(embeddings)[1]
        scores = self.scores(embeddings, embeddings)
        return self.expected_loss(scores, *label_masks(labels), dimension)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the share of each anchor, `[A]`. See `PairLoss.pair_loss`.

        Raises:
            ValueError: The constructor got no `dimension`.
        """
        if self.dimension is None:
            raise ValueError(
                "`dimension`, the number of components of an embedding, must be given "
                "to the constructor if only scores are known. Received: None."
            )
        return self.expected_loss(scores, positives, negatives, self.dimension)

    @abstractmethod
    def expected_loss(
        self,
        scores: Tensor,
        positives: Tensor,
        negatives: Tensor,
        dimension: int | Tensor,
    ) -> Tensor:
        """Compute the share of each anchor, `[A]`."""

    def probabilities(
        self, squared: Tensor, negatives: Tensor, dimension: int | Tensor
    ) -> Tensor:
        """Return the constants q(n | a), `[A, G]`, given squared distances."""
        return negative_probabilities(
            squared, negatives, dimension, self.cutoff, self.nonzero_loss_cutoff
        )


def count_pairs(positives: Tensor, negatives: Tensor, dtype: str) -> Tensor:
    """Count the positive pairs whose anchor has a negative."""
    pairs = count(positives, dtype, axis=1)
    return ops.sum(ops.where(ops.any(negatives, axis=1), pairs, 0))
