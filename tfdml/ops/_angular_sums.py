"""Sums over positive pairs of what their negatives cost, without a cubic tensor."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tfdml.ops._pairs import Tensor, masked_logsumexp, softplus
from tfdml.ops._partners import Partners, is_in, pair_kinds

Costs = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]
"""Maps 4 t^2 (a + p).n `[B, B]`, 2 (1 + t^2) a.p `[B]`, the negatives and t^2 to the
cost of each pair `[B]`, its derivatives by the first `[B, B]`, and their sums `[B]`."""


def soft_costs(
    rivals: Tensor, pulls: Tensor, negatives: Tensor, squared: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute log(1 + sum over negatives of e^(rivals - pulls)). See `Costs`."""
    sums = masked_logsumexp(rivals, negatives)
    found = ops.isfinite(sums)
    shares = rivals - ops.expand_dims(ops.where(found, sums, 0), 1)
    shares = ops.exp(ops.where(negatives, shares, -float("inf")))
    total = ops.sigmoid(sums - pulls)
    return softplus(sums - pulls), shares * ops.expand_dims(total, 1), total


def hinge_costs(
    rivals: Tensor, pulls: Tensor, negatives: Tensor, squared: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the sum over negatives of max(0, ||a-p||^2 - 4 t^2 ||n-(a+p)/2||^2)."""
    gaps = rivals - ops.expand_dims(pulls, 1) + (2 - 6 * squared)
    # "Not at most": a NaN is active, so that it comes to light.
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
    def sums(scores: Tensor, kinds: Tensor) -> Any:
        no_gradient = ops.zeros_like(kinds)
        partners = Partners.of(kinds)

        def cost(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            pulls = 2 * (1 + squared) * ops.sum(ops.where(at, scores, 0), axis=1)
            rivals = 4 * squared * (scores + ops.take(scores, row, axis=0))
            return costs(rivals, pulls, partners.negatives, squared)

        def value_of(at: Tensor, row: Tensor) -> Tensor:
            value, _, derivatives = cost(at, row)
            both = ops.stack([value, derivatives], axis=1)
            return ops.where(ops.expand_dims(is_in(at, partners.pairs), 1), both, 0)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = (args[0] if upstream is None else upstream)[:, 0]

            def gradient_of(at: Tensor, row: Tensor) -> Tensor:
                _, shares, derivatives = cost(at, row)
                there, back = partners.weights(at, row, upstream)
                pushes = 4 * squared * ops.expand_dims(there + back, 1) * shares
                pulls = 2 * (1 + squared) * there * derivatives
                return pushes - ops.where(at, ops.expand_dims(pulls, 1), 0)

            return partners.total(gradient_of, ops.zeros_like(scores)), no_gradient

        # Not of a slice: a batch of one row has no second column.
        start = ops.zeros((ops.shape(scores)[0], 2), scores.dtype)
        return partners.total(value_of, start), gradient

    return sums(scores, pair_kinds(pairs, negatives, scores.dtype))


def sums_by_rows(
    scores: Tensor, pairs: Tensor, negatives: Tensor, squared: float
) -> Tensor:
    """Sum the soft costs of each anchor's pairs, each a product of two rows.

    Args and shapes are those of `sums_in_turn`; returns `[B]`.
    """
    smallest = _smallest(scores)

    @ops.custom_gradient
    def sums(scores: Tensor, kinds: Tensor) -> Any:
        no_gradient = ops.zeros_like(kinds)
        partners = Partners.of(kinds)

        def costs() -> tuple[Tensor, Callable[[Tensor, Tensor], tuple]]:
            shares, largest = _scaled_shares(scores, partners.negatives, squared)
            largest = largest[:, 0]

            def cost(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                """Return the partner's shares, their product and the cost's logit."""
                others = ops.take(shares, row, axis=0)
                product = ops.sum(shares * others, axis=1)
                in_range = ops.where(product < smallest, smallest, product)
                pulls = 2 * (1 + squared) * ops.sum(ops.where(at, scores, 0), axis=1)
                logit = ops.log(in_range) + largest + ops.take(largest, row)
                return others, product, logit - pulls

            return shares, cost

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream
            shares, cost = costs()

            def gradient_of(at: Tensor, row: Tensor) -> Tensor:
                others, product, logit = cost(at, row)
                there, back = partners.weights(at, row, upstream)
                slope = ops.sigmoid(logit)
                # A product that is too small for the type is constant. (NaN passes.)
                known = ops.logical_not(product < smallest)
                push = ops.where(known, (there + back) * slope / product, 0)
                pull = ops.expand_dims(2 * (1 + squared) * there * slope, 1)
                return ops.expand_dims(push, 1) * others - ops.where(at, pull, 0)

            total = partners.total(gradient_of, ops.zeros_like(scores))
            # No partner is a negative: shares are 0 there, and no push arrives.
            pushes = 4 * squared * shares * total
            return ops.where(partners.either, total, pushes), no_gradient

        _, cost = costs()

        def value_of(at: Tensor, row: Tensor) -> Tensor:
            _, _, logit = cost(at, row)
            return ops.where(is_in(at, partners.pairs), softplus(logit), 0)

        return partners.total(value_of, ops.zeros_like(scores[:, 0])), gradient

    return sums(scores, pair_kinds(pairs, negatives, scores.dtype))


def _smallest(scores: Tensor) -> float:
    """Return what stands for a product of shares that is too small for the type."""
    wide = keras.backend.standardize_dtype(scores.dtype) == "float64"
    return 1e-300 if wide else 1e-37


def _scaled_shares(
    scores: Tensor, negatives: Tensor, squared: float
) -> tuple[Tensor, Tensor]:
    """Compute e^(4 t^2 a.n - largest), 0 but for negatives, and largest `[B, 1]`."""
    logits = 4 * squared * scores
    found = ops.any(negatives, axis=1, keepdims=True)
    largest = ops.where(negatives, logits, -float("inf"))
    largest = ops.where(found, ops.max(largest, axis=1, keepdims=True), 0)
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
    def sums(scores: Tensor, kinds: Tensor) -> Any:
        no_gradient = ops.zeros_like(kinds)
        pairs, negatives = kinds > 0, kinds < 0

        def rivals() -> tuple[Tensor, Tensor, Tensor]:
            """Shares e^(4 t^2 a.n - largest), their products, and the costs' logits."""
            shares, largest = _scaled_shares(scores, negatives, squared)
            # Both ends of a pair have the same negatives, so that its sum is above 0,
            # but it may be too small for the type. (Written so that NaN passes.)
            products = ops.matmul(shares, ops.transpose(shares))
            in_range = ops.where(products < smallest, smallest, products)
            logits = ops.log(in_range) + largest + ops.transpose(largest)
            return shares, products, logits - 2 * (1 + squared) * scores

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream
            shares, products, logits = rivals()
            slopes = ops.expand_dims(upstream, 1) * ops.sigmoid(logits)
            slopes = ops.where(pairs, slopes, 0)
            known = ops.logical_and(pairs, products >= smallest)
            pushes = ops.where(known, slopes / ops.where(known, products, 1), 0)
            pushes = ops.matmul(pushes + ops.transpose(pushes), shares)
            pushes = 4 * squared * shares * pushes
            return pushes - 2 * (1 + squared) * slopes, no_gradient

        values = ops.where(pairs, softplus(rivals()[2]), 0)
        return ops.sum(values, axis=1), gradient

    return sums(scores, pair_kinds(pairs, negatives, scores.dtype))
