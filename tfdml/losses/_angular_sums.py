"""Sum the costs of positive pairs, given all their negatives, in O(B^2) memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from tfdml._core.control_flow import while_loop
from tfdml._core.tensors import Tensor
from tfdml.ops import masked_logsumexp, softplus

Costs = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]
"""Maps 4 t^2 (a + p).n `[B, B]`, 2 (1 + t^2) a.p `[B]`, the negatives and t^2 to the
cost of each pair `[B]`, its derivatives by the first `[B, B]`, and their sums `[B]`."""


def soft_costs(
    negative_logits: Tensor, pair_logits: Tensor, negatives: Tensor, squared: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute log(1 + sum of e^(negative_logits - pair_logits)). See `Costs`."""
    sums = masked_logsumexp(negative_logits, negatives)
    is_finite = ops.isfinite(sums)
    shares = negative_logits - ops.expand_dims(ops.where(is_finite, sums, 0), 1)
    shares = ops.exp(ops.where(negatives, shares, -float("inf")))
    total = ops.sigmoid(sums - pair_logits)
    return softplus(sums - pair_logits), shares * ops.expand_dims(total, 1), total


def hinge_costs(
    negative_logits: Tensor, pair_logits: Tensor, negatives: Tensor, squared: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the sum over negatives of max(0, ||a-p||^2 - 4 t^2 ||n-(a+p)/2||^2)."""
    gaps = negative_logits - ops.expand_dims(pair_logits, 1) + (2 - 6 * squared)
    # "Not at most": a NaN is active, so that it shows.
    active = ops.logical_and(negatives, ops.logical_not(gaps <= 0))
    shares = ops.cast(active, gaps.dtype)
    return ops.sum(ops.where(active, gaps, 0), axis=1), shares, ops.sum(shares, axis=1)


def sums_in_turn(
    scores: Tensor, pairs: Tensor, negatives: Tensor, squared: float, costs: Costs
) -> Tensor:
    """Sum the costs of each anchor's pairs, one partner of all anchors at a time.

    Args:
        scores: Cosine similarities of a batch with itself, `[B, B]`.
        pairs: The pairs (a, p) that cost something, boolean `[B, B]`.
        negatives: Boolean `[B, B]`, the same row for both ends of a pair.
        squared: t^2.
        costs: `soft_costs` or `hinge_costs`.

    Returns:
        `[B, 2]`: the sum of the costs, and that of all derivatives, which has no
        gradient; of the hinge it is the number of active triplets.
    """

    @ops.custom_gradient
    def sums(scores: Tensor, signs: Tensor) -> Any:
        no_gradient = ops.zeros_like(signs)
        partners = Partners.of(signs)

        def cost(is_partner: Tensor, partner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            pair_logits = (
                2 * (1 + squared) * ops.sum(ops.where(is_partner, scores, 0), axis=1)
            )
            negative_logits = 4 * squared * (scores + ops.take(scores, partner, axis=0))
            return costs(negative_logits, pair_logits, partners.negatives, squared)

        def value_of(is_partner: Tensor, partner: Tensor) -> Tensor:
            value, _, derivatives = cost(is_partner, partner)
            both = ops.stack([value, derivatives], axis=1)
            return ops.where(
                ops.expand_dims(is_in(is_partner, partners.pairs), 1), both, 0
            )

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = (args[0] if upstream is None else upstream)[:, 0]

            def gradient_of(is_partner: Tensor, partner: Tensor) -> Tensor:
                _, shares, derivatives = cost(is_partner, partner)
                forward, backward = partners.weights(is_partner, partner, upstream)
                slopes = 4 * squared * ops.expand_dims(forward + backward, 1) * shares
                pair_slope = 2 * (1 + squared) * forward * derivatives
                return slopes - ops.where(is_partner, ops.expand_dims(pair_slope, 1), 0)

            return partners.total(gradient_of, ops.zeros_like(scores)), no_gradient

        # Not of a slice: a batch of one row has no second column.
        start = ops.zeros((ops.shape(scores)[0], 2), scores.dtype)
        return partners.total(value_of, start), gradient

    return sums(scores, pair_signs(pairs, negatives, scores.dtype))


def sums_by_rows(
    scores: Tensor, pairs: Tensor, negatives: Tensor, squared: float
) -> Tensor:
    """Sum the soft costs of each anchor's pairs, each from a product of two rows.

    Args and shapes are those of `sums_in_turn`; returns `[B]`.
    """
    smallest = _smallest(scores)

    @ops.custom_gradient
    def sums(scores: Tensor, signs: Tensor) -> Any:
        no_gradient = ops.zeros_like(signs)
        partners = Partners.of(signs)

        def costs() -> tuple[Tensor, Callable[[Tensor, Tensor], tuple]]:
            shares, largest = _scaled_shares(scores, partners.negatives, squared)
            largest = largest[:, 0]

            def cost(
                is_partner: Tensor, partner: Tensor
            ) -> tuple[Tensor, Tensor, Tensor]:
                """Return the partner's shares, their product and the cost's logit."""
                others = ops.take(shares, partner, axis=0)
                product = ops.sum(shares * others, axis=1)
                in_range = ops.where(product < smallest, smallest, product)
                pair_logits = (
                    2
                    * (1 + squared)
                    * ops.sum(ops.where(is_partner, scores, 0), axis=1)
                )
                logit = ops.log(in_range) + largest + ops.take(largest, partner)
                return others, product, logit - pair_logits

            return shares, cost

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream
            shares, cost = costs()

            def gradient_of(is_partner: Tensor, partner: Tensor) -> Tensor:
                others, product, logit = cost(is_partner, partner)
                forward, backward = partners.weights(is_partner, partner, upstream)
                slope = ops.sigmoid(logit)
                # A product that is too small for the type is constant. (NaN passes.)
                known = ops.logical_not(product < smallest)
                scale = ops.where(known, (forward + backward) * slope / product, 0)
                pair_slope = ops.expand_dims(2 * (1 + squared) * forward * slope, 1)
                slopes = ops.expand_dims(scale, 1) * others
                return slopes - ops.where(is_partner, pair_slope, 0)

            total = partners.total(gradient_of, ops.zeros_like(scores))
            # A partner is not a negative: its shares are 0, and so is that slope.
            slopes = 4 * squared * shares * total
            return ops.where(partners.either, total, slopes), no_gradient

        _, cost = costs()

        def value_of(is_partner: Tensor, partner: Tensor) -> Tensor:
            _, _, logit = cost(is_partner, partner)
            return ops.where(is_in(is_partner, partners.pairs), softplus(logit), 0)

        return partners.total(value_of, ops.zeros_like(scores[:, 0])), gradient

    return sums(scores, pair_signs(pairs, negatives, scores.dtype))


def _smallest(scores: Tensor) -> float:
    """Return the number that replaces products of shares too small for the type."""
    wide = keras.backend.standardize_dtype(scores.dtype) == "float64"
    return 1e-300 if wide else 1e-37


def _scaled_shares(
    scores: Tensor, negatives: Tensor, squared: float
) -> tuple[Tensor, Tensor]:
    """Compute e^(4 t^2 a.n - largest), 0 but for negatives, and largest `[B, 1]`."""
    logits = 4 * squared * scores
    has_negative = ops.any(negatives, axis=1, keepdims=True)
    largest = ops.where(negatives, logits, -float("inf"))
    largest = ops.where(has_negative, ops.max(largest, axis=1, keepdims=True), 0)
    shares = ops.exp(ops.where(negatives, logits - largest, -float("inf")))
    return shares, largest


def sums_by_product(
    scores: Tensor, pairs: Tensor, negatives: Tensor, squared: float
) -> Tensor:
    """Sum the soft costs of each anchor's pairs, by a product of B x B matrices.

    Args and shapes are those of `sums_in_turn`; returns `[B]`.
    """
    smallest = _smallest(scores)

    # The gradient computes all again rather than keep several B x B matrices.
    @ops.custom_gradient
    def sums(scores: Tensor, signs: Tensor) -> Any:
        no_gradient = ops.zeros_like(signs)
        pairs, negatives = signs > 0, signs < 0

        def terms() -> tuple[Tensor, Tensor, Tensor]:
            """Return e^(4 t^2 a.n - largest), their products and the costs' logits."""
            shares, largest = _scaled_shares(scores, negatives, squared)
            # Both ends of a pair have the same negatives, so that its sum is above 0,
            # but it may be too small for the type. (Written so that NaN passes.)
            products = ops.matmul(shares, ops.transpose(shares))
            in_range = ops.where(products < smallest, smallest, products)
            logits = ops.log(in_range) + largest + ops.transpose(largest)
            return shares, products, logits - 2 * (1 + squared) * scores

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream
            shares, products, logits = terms()
            slopes = ops.expand_dims(upstream, 1) * ops.sigmoid(logits)
            slopes = ops.where(pairs, slopes, 0)
            known = ops.logical_and(pairs, products >= smallest)
            scales = ops.where(known, slopes / ops.where(known, products, 1), 0)
            total = ops.matmul(scales + ops.transpose(scales), shares)
            total = 4 * squared * shares * total
            return total - 2 * (1 + squared) * slopes, no_gradient

        values = ops.where(pairs, softplus(terms()[2]), 0)
        return ops.sum(values, axis=1), gradient

    return sums(scores, pair_signs(pairs, negatives, scores.dtype))


def pair_signs(pairs: Tensor, negatives: Tensor, dtype: str) -> Tensor:
    """Encode two masks as one tensor of floats: 1 for a pair, -1 for a negative.

    JAX traces no branch over a function with a gradient of its own that takes tensors
    from outside: the masks are an argument of it, and floats.
    """
    signs = ops.where(pairs, 1, ops.where(negatives, -1, 0))
    return ops.cast(signs, dtype)


class Partners(NamedTuple):
    """The pairs (a, p) of a batch, whose cost changes both rows.

    Attributes:
        pairs: Boolean `[B, B]`.
        negatives: Boolean `[B, B]`.
        backward: The pairs from p to a.
        either: The pairs both ways.
    """

    pairs: Tensor
    negatives: Tensor
    backward: Tensor
    either: Tensor

    @classmethod
    def of(cls, signs: Tensor) -> "Partners":
        """Restore the masks from the result of `pair_signs`."""
        pairs = signs > 0
        backward = ops.transpose(pairs)
        return cls(pairs, signs < 0, backward, ops.logical_or(pairs, backward))

    def total(self, step: Callable[[Tensor, Tensor], Tensor], start: Tensor) -> Tensor:
        """Sum `step` over the first partner of all rows, the second, and so on.

        Args:
            step: Function of a mask of each row's partner, boolean `[B, B]` with at
                most one True per row, and of its index, int32 `[B]` (arbitrary where a
                row has no further partner).
            start: Initial value of the sum.
        """
        batch = ops.shape(self.either)[0]
        columns = ops.arange(batch, dtype="int32")

        def following(place: Tensor) -> Tensor:
            """Return the next partner of each row after a place, or B."""
            later = ops.logical_and(self.either, columns > ops.expand_dims(place, 1))
            return ops.min(ops.where(later, columns, batch), axis=1)

        def of_one(place: Tensor) -> Tensor:
            is_partner = ops.equal(columns, ops.expand_dims(place, 1))
            return step(is_partner, ops.minimum(place, batch - 1))

        return while_loop(
            lambda place, total: ops.any(place < batch),
            lambda place, total: (following(place), total + of_one(place)),
            (following(ops.full_like(columns, -1)), start),
        )[1]

    def weights(
        self, is_partner: Tensor, partner: Tensor, upstream: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the weights of the costs of (a, p) and of (p, a), `[B]` each."""
        forward = ops.where(is_in(is_partner, self.pairs), upstream, 0)
        backward = ops.take(upstream, partner)
        return forward, ops.where(is_in(is_partner, self.backward), backward, 0)


def is_in(is_partner: Tensor, mask: Tensor) -> Tensor:
    """Return for each row whether its partner is in a mask, boolean `[B]`."""
    return ops.any(ops.logical_and(is_partner, mask), axis=1)
