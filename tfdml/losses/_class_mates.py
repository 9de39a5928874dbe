"""Find the rows of a batch that are of one class, without sorting or scattering."""

from typing import NamedTuple

from keras import ops

from tfdml._core.tensors import Tensor, count, same_labels, wide


class ClassMates(NamedTuple):
    """The classes of a batch, and which of its rows are anchors and which others.

    Positive pairs are those of an anchor with another row of its class that is among
    the others; its negatives are the others of the other classes.

    Attributes:
        group: The position of the first row of each row's class, int32 `[B]`.
        anchors: Rows that have pairs, boolean `[B]`.
        others: Rows that are positives and negatives, boolean `[B]`.
        before: How many rows are of classes that come before, int32 `[B]`.
        rank: How many rows of its class come before, int32 `[B]`.
        size: How many rows its class has, int32 `[B]`.
        order: The rows, sorted by class, int32 `[B]`.
    """

    group: Tensor
    anchors: Tensor
    others: Tensor
    before: Tensor
    rank: Tensor
    size: Tensor
    order: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> "ClassMates":
        """Find the classes from what `encoded_rows` returns.

        By comparing all pairs, which costs no memory once it is compiled: a sort takes
        longer on GPUs.
        """
        group = ops.cast(rows[0], "int32")
        position = ops.arange(ops.shape(group)[0], dtype="int32")
        left, right = ops.expand_dims(group, 1), ops.expand_dims(group, 0)
        same = ops.equal(left, right)
        column = ops.expand_dims(position, 0)
        earlier = ops.logical_and(same, column < ops.expand_dims(position, 1))
        before, rank, size = (_counts(mask) for mask in (right < left, earlier, same))
        is_there = same_labels(position, before + rank)
        order = ops.max(ops.where(is_there, column, 0), axis=1)
        return cls(group, rows[1] > 0, rows[2] > 0, before, rank, size, order)

    @property
    def same(self) -> Tensor:
        """Return the pairs of one class, boolean `[B, B]`."""
        return same_labels(self.group, self.group)

    @property
    def are_ends(self) -> Tensor:
        """Return anchors with others, boolean `[B, B]`."""
        return ops.logical_and(ops.expand_dims(self.anchors, 1), self.others)

    @property
    def negatives(self) -> Tensor:
        """Return the negatives of each row, boolean `[B, B]`."""
        return ops.logical_and(ops.logical_not(self.same), self.others)

    @property
    def most(self) -> Tensor:
        """Return the largest number of mates that a row has, a scalar."""
        return ops.max(self.size) - 1

    def number_of_pairs(self, dtype: str) -> Tensor:
        """Count the pairs of each anchor, `[B]`."""
        pairs = ops.logical_and(self.same, self.others)
        others = count(pairs, dtype, axis=1) - ops.cast(self.others, wide(dtype))
        return ops.where(self.anchors, others, 0)

    def mates(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Return another row of each row's class: the first is number 0.

        Returns:
            Its position, int32 `[B]`, and whether there is one, boolean `[B]`; the
            position of the row itself where there is none.
        """
        number = ops.cast(number, "int32")
        place = self.before + number + ops.cast(self.rank <= number, "int32")
        last = ops.shape(self.group)[0] - 1
        mate = ops.take(self.order, ops.minimum(place, last))
        exists = number < self.size - 1
        position = ops.arange(last + 1, dtype="int32")
        return ops.where(exists, mate, position), exists

    def rows_from(self, number: Tensor) -> Tensor:
        """Return each row with its mates from a number on, boolean `[B, B]`."""
        left, right = ops.expand_dims(self.rank, 1), ops.expand_dims(self.rank, 0)
        place = right - ops.cast(right > left, "int32")
        itself = ops.equal(left, right)
        counts = ops.logical_and(place >= number, ops.logical_not(itself))
        return ops.logical_and(counts, self.same)


def _counts(mask: Tensor) -> Tensor:
    """Count the True values of each row; JAX adds int32 to int64."""
    return ops.cast(ops.sum(ops.cast(mask, "int32"), axis=1), "int32")


def encoded_rows(labels: Tensor, others: Tensor, anchors: Tensor, dtype: str) -> Tensor:
    """Encode the classes of a batch as floats `[3, B]`, for `ClassMates.of`.

    They are the argument of a function with a gradient of its own, to which JAX hands
    no tensors from outside, and no integers.

    Args:
        labels: Tensor `[B]`.
        others: Rows that are positives and negatives, boolean `[B]`.
        anchors: Rows that have pairs if they have negatives, boolean `[B]`.
        dtype: A type of at least 32 bits.
    """
    same = same_labels(labels, labels)
    batch = ops.shape(labels)[0]
    column = ops.arange(batch, dtype="int32")
    group = ops.min(ops.where(same, column, batch), axis=1)
    is_negative = ops.logical_and(ops.logical_not(same), others)
    anchors = ops.logical_and(anchors, ops.any(is_negative, axis=1))
    return ops.stack([ops.cast(x, dtype) for x in (group, anchors, others)])
