"""Sums over positive pairs of what their negatives cost, without a cubic tensor."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tfdml.control_flow import while_loop
from tfdml.pairs import Tensor, masked_logsumexp, softplus

__all__ = ["hinge_costs", "soft_costs", "sums_by_product", "sums_in_turn"]

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

    # JAX traces no branch over a function with a gradient of its own that takes tensors
    # from outside: the masks are an argument, and floats.
    @ops.custom_gradient
    def sums(scores: Tensor, kinds: Tensor) -> Any:
        no_gradient = ops.zeros_like(kinds)
        pairs, negatives = kinds > 0, kinds < 0
        # What a pair costs, it costs both ways: a row's gradient comes from both.
        backward_pairs = ops.transpose(pairs)
        partners = ops.logical_or(pairs, backward_pairs)
        batch = ops.shape(scores)[0]
        columns = ops.arange(batch, dtype="int32")

        def following(place: Tensor) -> Tensor:
            """Return the next partner of each row after a place, or B."""
            later = ops.logical_and(partners, columns > ops.expand_dims(place, 1))
            return ops.min(ops.where(later, columns, batch), axis=1)

        def each_partner(step: Callable, start: Tensor) -> Tensor:
            first = following(ops.full_like(columns, -1))
            return while_loop(
                lambda place, total: ops.any(place < batch),
                lambda place, total: (following(place), total + step(place)),
                (first, start),
            )[1]

        def partner(place: Tensor) -> tuple[Tensor, Tensor, Any]:
            """Where a row's partner is, as mask and index, and what the pair costs."""
            at = ops.equal(columns, ops.expand_dims(place, 1))
            row = ops.minimum(place, batch - 1)
            pulls = 2 * (1 + squared) * ops.sum(ops.where(at, scores, 0), axis=1)
            rivals = 4 * squared * (scores + ops.take(scores, row, axis=0))
            return at, row, costs(rivals, pulls, negatives, squared)

        def is_in(at: Tensor, mask: Tensor) -> Tensor:
            return ops.any(ops.logical_and(at, mask), axis=1)

        def cost_of(place: Tensor) -> Tensor:
            at, _, (cost, _, derivatives) = partner(place)
            both = ops.stack([cost, derivatives], axis=1)
            return ops.where(ops.expand_dims(is_in(at, pairs), 1), both, 0)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            weights = (args[0] if upstream is None else upstream)[:, 0]

            def gradient_of(place: Tensor) -> Tensor:
                at, row, (_, shares, derivatives) = partner(place)
                there = ops.where(is_in(at, pairs), weights, 0)
                back = ops.where(is_in(at, backward_pairs), ops.take(weights, row), 0)
                pushes = 4 * squared * ops.expand_dims(there + back, 1) * shares
                pulls = 2 * (1 + squared) * there * derivatives
                return pushes - ops.where(at, ops.expand_dims(pulls, 1), 0)

            total = each_partner(gradient_of, ops.zeros_like(scores))
            return total, no_gradient

        return each_partner(cost_of, ops.zeros((batch, 2), scores.dtype)), gradient

    kinds = ops.where(pairs, 1, ops.where(negatives, -1, 0))
    return sums(scores, ops.cast(kinds, scores.dtype))


def sums_by_product(
    scores: Tensor, pairs: Tensor, negatives: Tensor, squared: float
) -> Tensor:
    """Sum the soft costs of each anchor's pairs, by a product of B x B matrices.

    Args and shapes are those of `sums_in_turn`; returns `[B]`.
    """
    wide = keras.backend.standardize_dtype(scores.dtype) == "float64"
    smallest = 1e-300 if wide else 1e-37

    # The gradient computes all again rather than keep several B x B matrices.
    @ops.custom_gradient
    def sums(scores: Tensor, kinds: Tensor) -> Any:
        no_gradient = ops.zeros_like(kinds)
        pairs, negatives = kinds > 0, kinds < 0

        def rivals() -> tuple[Tensor, Tensor, Tensor]:
            """Shares e^(4 t^2 a.n - largest), their products, and the costs' logits."""
            logits = 4 * squared * scores
            found = ops.any(negatives, axis=1, keepdims=True)
            largest = ops.where(negatives, logits, -float("inf"))
            largest = ops.where(found, ops.max(largest, axis=1, keepdims=True), 0)
            shares = ops.exp(ops.where(negatives, logits - largest, -float("inf")))
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

    kinds = ops.where(pairs, 1, ops.where(negatives, -1, 0))
    return sums(scores, ops.cast(kinds, scores.dtype))
