"""The positive pairs of a batch, one partner of all rows at a time."""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from tfdml.ops._control_flow import while_loop
from tfdml.ops._pairs import Tensor


def pair_kinds(pairs: Tensor, negatives: Tensor, dtype: str) -> Tensor:
    """Write two masks as one tensor of floats: 1 for a pair, -1 for a negative.

    JAX traces no branch over a function with a gradient of its own that takes tensors
    from outside: the masks are an argument of it, and floats.
    """
    kinds = ops.where(pairs, 1, ops.where(negatives, -1, 0))
    return ops.cast(kinds, dtype)


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
    def of(cls, kinds: Tensor) -> "Partners":
        """Take the masks out of what `pair_kinds` returned."""
        pairs = kinds > 0
        backward = ops.transpose(pairs)
        return cls(pairs, kinds < 0, backward, ops.logical_or(pairs, backward))

    def total(self, step: Callable[[Tensor, Tensor], Tensor], start: Tensor) -> Tensor:
        """Sum `step` of the first partner of all rows, of the second, and so on.

        Args:
            step: Function of where a row's partner is, boolean `[B, B]` with at most
                one True a row, and of its index, int32 `[B]` (any where it has none).
            start: What the sum begins with.
        """
        batch = ops.shape(self.either)[0]
        columns = ops.arange(batch, dtype="int32")

        def following(place: Tensor) -> Tensor:
            """Return the next partner of each row after a place, or B."""
            later = ops.logical_and(self.either, columns > ops.expand_dims(place, 1))
            return ops.min(ops.where(later, columns, batch), axis=1)

        def of_one(place: Tensor) -> Tensor:
            at = ops.equal(columns, ops.expand_dims(place, 1))
            return step(at, ops.minimum(place, batch - 1))

        return while_loop(
            lambda place, total: ops.any(place < batch),
            lambda place, total: (following(place), total + of_one(place)),
            (following(ops.full_like(columns, -1)), start),
        )[1]

    def weights(
        self, at: Tensor, row: Tensor, upstream: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what the cost of (a, p), and that of (p, a), counts, `[B]` each."""
        there = ops.where(is_in(at, self.pairs), upstream, 0)
        back = ops.where(is_in(at, self.backward), ops.take(upstream, row), 0)
        return there, back


def is_in(at: Tensor, mask: Tensor) -> Tensor:
    """Say for each row whether its place is in a mask, boolean `[B]`."""
    return ops.any(ops.logical_and(at, mask), axis=1)
