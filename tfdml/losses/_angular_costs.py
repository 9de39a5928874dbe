"""Compute what a positive pair costs given all its negatives, in three forms."""

from abc import ABC, abstractmethod

from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.ops import masked_logsumexp, softplus


class Costs(ABC):
    """The costs of pairs (a, p) of a batch, one partner of each row at a time.

    Args:
        scores: Cosine similarities of a batch with itself, `[B, B]`.
        negatives: Boolean `[B, B]`, the same row for both ends of a pair.
        squared: t^2.
    """

    def __init__(self, scores: Tensor, negatives: Tensor, squared: float) -> None:
        self.scores = scores
        self.negatives = negatives
        self.squared = squared

    def logits_of_negatives(self, partner: Tensor) -> Tensor:
        """Compute 4 t^2 (a + p).n, `[B, B]`."""
        return 4 * self.squared * (self.scores + ops.take(self.scores, partner, axis=0))

    @abstractmethod
    def cost(self, partner: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the cost of the pair of each row with its partner.

        Args:
            partner: Int32 `[B]`.
            logits: 2 (1 + t^2) a.p, `[B]`.

        Returns:
            The cost, its derivative by minus the logit, and what `slopes` needs.
        """

    @abstractmethod
    def slopes(
        self, derivative: Tensor, state: Tensor, partner: Tensor, weights: Tensor
    ) -> Tensor:
        """Compute the derivatives by 4 t^2 a.n, 0 but for negatives, `[B, B]`.

        Args:
            derivative: From `cost`.
            state: From `cost`.
            partner: Int32 `[B]`.
            weights: Factor of each row, `[B]`.
        """

    def finished(self, slopes: Tensor) -> Tensor:
        """Return the sum of slopes, with the factor that all have in common."""
        return slopes

    @staticmethod
    def soft(logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute log(1 + e^logits) and its derivative."""
        return softplus(logits), ops.sigmoid(logits)


class SharesOfRows(Costs):
    """log(1 + sum over n of e^(4 t^2 (a + p).n - 2 (1 + t^2) a.p)), fast.

    With s_n = e^(4 t^2 a.n - largest), the sum is that of products of two rows of s.
    The smallest product is at least e^(-8 t^2), a float32 up to 70 degrees.
    """

    def __init__(self, scores: Tensor, negatives: Tensor, squared: float) -> None:
        super().__init__(scores, negatives, squared)
        logits = ops.where(negatives, 4 * squared * scores, -float("inf"))
        if squared <= 3:  # e^(-16 t^2) is a float32, and a cosine is at most 1
            self.largest = 4 * squared * ops.ones_like(scores[:, 0])
        else:
            largest = ops.max(logits, axis=1)
            has_none = ops.equal(largest, -float("inf"))
            self.largest = ops.where(has_none, 0, largest)
        self.shares = ops.exp(logits - ops.expand_dims(self.largest, 1))

    def cost(self, partner: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        others = ops.take(self.shares, partner, axis=0)
        product = ops.sum(self.shares * others, axis=1)
        largest = self.largest + ops.take(self.largest, partner)
        return *self.soft(ops.log(product) + largest - logits), product

    def slopes(
        self, derivative: Tensor, state: Tensor, partner: Tensor, weights: Tensor
    ) -> Tensor:
        # A row without negatives has no sum. (NaN passes.)
        has_none = ops.equal(state, 0)
        scale = ops.where(has_none, 0, weights * derivative)
        scale = scale / ops.where(has_none, 1, state)
        return ops.expand_dims(scale, 1) * ops.take(self.shares, partner, axis=0)

    def finished(self, slopes: Tensor) -> Tensor:
        return self.shares * slopes

    def products(self) -> Tensor:
        """Compute the sums over negatives of all pairs, `[B, B]`."""
        return ops.matmul(self.shares, ops.transpose(self.shares))

    def logits(self, products: Tensor | None = None) -> Tensor:
        """Compute log sum over n of e^(4 t^2 (a + p).n) of all pairs, `[B, B]`."""
        logs = ops.log(self.products() if products is None else products)
        return logs + ops.expand_dims(self.largest, 1) + self.largest


class ExactSoftCosts(Costs):
    """The same costs by a log-sum-exp per pair, exact at any angle."""

    def cost(self, partner: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sums = masked_logsumexp(self.logits_of_negatives(partner), self.negatives)
        return *self.soft(sums - logits), sums

    def slopes(
        self, derivative: Tensor, state: Tensor, partner: Tensor, weights: Tensor
    ) -> Tensor:
        sums = ops.expand_dims(ops.where(ops.equal(state, -float("inf")), 0, state), 1)
        shares = self.logits_of_negatives(partner) - sums
        shares = ops.exp(ops.where(self.negatives, shares, -float("inf")))
        return shares * ops.expand_dims(weights * derivative, 1)


class HingeCosts(Costs):
    """The sum over negatives n of max(0, ||a - p||^2 - 4 t^2 ||n - (a + p) / 2||^2)."""

    def gaps(self, partner: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is cut at 0, and where it is above, `[B, B]`."""
        gaps = self.logits_of_negatives(partner) - ops.expand_dims(logits, 1)
        gaps = gaps + (2 - 6 * self.squared)
        # "Not at most": a NaN is active, so that it shows.
        return gaps, ops.logical_and(self.negatives, ops.logical_not(gaps <= 0))

    def cost(self, partner: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gaps, active = self.gaps(partner, logits)
        number = ops.sum(ops.cast(active, gaps.dtype), axis=1)
        return ops.sum(ops.where(active, gaps, 0), axis=1), number, logits

    def slopes(
        self, derivative: Tensor, state: Tensor, partner: Tensor, weights: Tensor
    ) -> Tensor:
        _, active = self.gaps(partner, state)
        return ops.where(active, ops.expand_dims(weights, 1), 0)
