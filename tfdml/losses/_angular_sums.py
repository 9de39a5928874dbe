"""Sum the costs of positive pairs, given all their negatives, in O(B^2) memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from tfdml._core.control_flow import cond, while_loop
from tfdml._core.tensors import Tensor
from tfdml.losses._angular_costs import Costs, SharesOfRows
from tfdml.losses._class_mates import ClassMates

_AT_ONCE = 3
"""So many partners of a row are compared in one pass."""


def sums_of_pairs(
    scores: Tensor,
    rows: Tensor,
    squared: float,
    costs: Callable[..., Costs],
    rows_per_partner: int,
) -> Tensor:
    """Sum the costs of each anchor's pairs.

    Args:
        scores: Cosine similarities of a batch with itself, `[B, B]`.
        rows: The classes of the batch, from `encoded_rows`.
        squared: t^2.
        costs: The class of the costs.
        rows_per_partner: From this number of rows per partner on, `SharesOfRows` takes
            the partners in turn, else by a product of matrices.

    Returns:
        `[B, 2]`: the sum of the costs, and that of their derivatives, which has no
        gradient; of the hinge it is the number of active triplets.
    """

    # Its own gradient keeps one B x B matrix; that of loops would keep several a step.
    @ops.custom_gradient
    def sums(scores: Tensor, rows: Tensor) -> Any:
        no_gradient = ops.zeros_like(rows)
        mates = ClassMates.of(rows)
        form = costs(scores, mates.negatives, squared)
        batch = _Batch(scores, mates, form, squared)
        few = rows_per_partner * mates.most <= ops.shape(scores)[0]

        def total(step: Callable, product: Callable, start: Tensor) -> Tensor:
            """Add what `step` returns of all partners but the first."""

            def add(number: Tensor, total: Tensor) -> Tensor:
                if not isinstance(form, SharesOfRows):
                    return total + step(number)
                return total + cond(
                    few, lambda: step(number), lambda: product(form, number)
                )

            def following(number: Tensor) -> Tensor:
                if not isinstance(form, SharesOfRows):
                    return number + _AT_ONCE
                return ops.where(few, number + _AT_ONCE, mates.most)

            first = ops.convert_to_tensor(_AT_ONCE, dtype="int32")
            return while_loop(
                lambda number, total: number < mates.most,
                lambda number, total: (following(number), add(number, total)),
                (first, start),
            )[1]

        # Most batches have few partners: they need no loop, and these results are kept.
        known = [batch.pairs(number) for number in range(_AT_ONCE)]

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = (args[0] if upstream is None else upstream)[:, 0]

            def step(number: Tensor) -> Tensor:
                pairs = [batch.pairs(number + i) for i in range(_AT_ONCE)]
                return batch.slopes(pairs, upstream)

            slopes = total(
                step,
                lambda form, number: batch.slopes_by_product(form, number, upstream),
                batch.slopes(known, upstream),
            )
            return batch.finished(slopes), no_gradient

        def values(number: Tensor) -> Tensor:
            return batch.values([batch.pairs(number + i) for i in range(_AT_ONCE)])

        start = batch.values(known)
        return total(values, batch.values_by_product, start), gradient

    return sums(scores, rows)


class _Pairs(NamedTuple):
    """A pair of each row, with its cost.

    Attributes:
        partner: Int32 `[B]`; the row itself where there is no further one.
        forward: Whether (row, partner) costs something, boolean `[B]`.
        backward: Whether (partner, row) does.
        value: The cost `[B]`.
        derivative: Its derivative by the logit, `[B]`; of the hinge a number of them.
        state: What `Costs.slopes` needs again, `[B]`.
    """

    partner: Tensor
    forward: Tensor
    backward: Tensor
    value: Tensor
    derivative: Tensor
    state: Tensor


class _Batch(NamedTuple):
    """The scores of a batch with the form of their costs."""

    scores: Tensor
    mates: ClassMates
    form: Costs
    squared: float

    def pairs(self, number: Any) -> _Pairs:
        """Return the pair of each row with one of its mates."""
        mates = self.mates
        partner, exists = mates.mates(number)
        forward = ops.logical_and(mates.anchors, ops.take(mates.others, partner))
        backward = ops.logical_and(mates.others, ops.take(mates.anchors, partner))
        score = ops.take_along_axis(self.scores, ops.expand_dims(partner, 1), axis=1)
        logits = 2 * (1 + self.squared) * ops.squeeze(score, axis=1)
        return _Pairs(
            partner,
            ops.logical_and(exists, forward),
            ops.logical_and(exists, backward),
            *self.form.cost(partner, logits),
        )

    def values(self, several: list[_Pairs]) -> Tensor:
        """Sum costs and derivatives, `[B, 2]`."""
        sums: Any = 0
        for pairs in several:
            both = ops.stack([pairs.value, pairs.derivative], axis=1)
            sums = sums + ops.where(ops.expand_dims(pairs.forward, 1), both, 0)
        return sums

    def slopes(self, several: list[_Pairs], upstream: Tensor) -> Tensor:
        """Sum the derivatives by each score, but for the factor of `finished`."""
        columns = ops.arange(ops.shape(self.scores)[0], dtype="int32")
        sums: Any = 0
        for pairs in several:
            forward = ops.where(pairs.forward, upstream, 0)
            weights = ops.where(pairs.backward, ops.take(upstream, pairs.partner), 0)
            down = 2 * (1 + self.squared) * forward * pairs.derivative
            is_partner = ops.equal(columns, ops.expand_dims(pairs.partner, 1))
            slopes = self.form.slopes(*pairs[-2:], pairs.partner, forward + weights)
            sums = sums + slopes - ops.where(is_partner, ops.expand_dims(down, 1), 0)
        return sums

    def finished(self, slopes: Tensor) -> Tensor:
        """Return the gradient, `[B, B]`, given the sum of all slopes."""
        slopes_of_negatives = 4 * self.squared * self.form.finished(slopes)
        return ops.where(self.mates.same, slopes, slopes_of_negatives)

    def values_by_product(self, form: SharesOfRows, number: Tensor) -> Tensor:
        """Sum costs and derivatives of all pairs from a number on, `[B, 2]`."""
        logits = form.logits() - 2 * (1 + self.squared) * self.scores
        pairs = ops.logical_and(self.mates.rows_from(number), self.mates.are_ends)
        both = [form.soft(ops.where(pairs, logits, -float("inf")))[i] for i in (0, 1)]
        return ops.stack([ops.sum(x, axis=1) for x in both], axis=1)

    def slopes_by_product(
        self, form: SharesOfRows, number: Tensor, upstream: Tensor
    ) -> Tensor:
        """Sum the slopes of all pairs from a number on, `[B, B]`."""
        products = form.products()
        logits = form.logits(products) - 2 * (1 + self.squared) * self.scores
        pairs = ops.logical_and(self.mates.same, self.mates.are_ends)
        slopes = ops.expand_dims(upstream, 1) * ops.sigmoid(logits)
        scales = ops.where(pairs, slopes / ops.where(pairs, products, 1), 0)
        # Whether p is a later mate of a, and a of p, are two questions.
        later = self.mates.rows_from(number)
        scales = ops.where(later, scales + ops.transpose(scales), 0)
        total = ops.matmul(scales, form.shares)
        forward = ops.logical_and(pairs, later)
        return total - 2 * (1 + self.squared) * ops.where(forward, slopes, 0)
