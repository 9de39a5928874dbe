"""Compute the multi-class N-pair loss of a batch of pairs."""

from typing import Any, NamedTuple

from keras import ops

from tfdml._core.arguments import boolean
from tfdml._core.tensors import Tensor, same_labels
from tfdml.losses._n_pair import NPairLoss
from tfdml.ops import label_masks


class MultiClassNPairLoss(NPairLoss):
    """Multi-class N-pair loss: one pair per class, negatives from the other pairs.

    The batch holds N classes with two rows each. The first row of a class is its
    anchor f, the second its positive f+:

        mean over i of log(1 + sum over j != i of e^(f_i.f+_j - f_i.f+_i))

    plus `l2_weight` times the mean squared length of the rows. The value of an anchor
    is twice its cost, that of the other rows 0, so that the mean over the batch is
    the mean over the pairs. With `symmetric=True` the loss is averaged with the one in
    which anchors and positives change places; then each row has its own cost.

    The loss compares a batch with itself. The rows of a class are distinguished by
    their order in the batch, and classes may be mixed. If a class has more than two
    rows, they are anchors and positives in turn; a class with one row can only be a
    negative of others.

    Args:
        symmetric: Whether positives are anchors too.
        l2_weight: Weight of the mean squared length, from 0 to 1e6. 0.001 to 0.01 in
            published code.
        normalize: Whether similarities are those of unit vectors.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        ValueError: `l2_weight` is out of range.

    Example:
        >>> loss = MultiClassNPairLoss()
        >>> embeddings = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> round(float(loss([7, 7, 9, 9], embeddings)), 4)  # log(1 + e^-1)
        0.3133

    Reference:
        Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective,
        NIPS 2016, Eq. 4; the symmetric form is that of the code of Hong et al.
    """

    def __init__(self, *, symmetric: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.symmetric: bool = boolean("symmetric", symmetric)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare anchors with positives and add the squared length of each row."""
        values = self._compare_batch(labels, embeddings)
        return self.with_lengths(values, embeddings)

    def _compare_batch(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        first = first_of_pair(labels)
        second = ops.logical_not(first)
        if self.symmetric:
            return self._compare(labels, embeddings, first, labels, embeddings, second)
        # At most every other row of a class is a second one, and at most two of three
        # rows are anchors that have one.
        batch = ops.shape(labels)[0]
        anchors = ops.logical_and(first, _is_in(labels, second))
        rows = _MaskedRows.of(anchors, (2 * batch + 2) // 3)
        columns = _MaskedRows.of(second, (batch + 1) // 2)
        values = self._compare(
            ops.take(labels, rows.chosen, axis=0),
            rows.of_floats(embeddings),
            rows.exists,
            ops.take(labels, columns.chosen, axis=0),
            columns.of_floats(embeddings),
            columns.exists,
        )
        share = ops.cast(batch, values.dtype) / ops.cast(
            ops.shape(values)[0], values.dtype
        )
        return ops.where(anchors, rows.put_back(values * share), 0)

    def _compare(
        self,
        labels: Tensor,
        embeddings: Tensor,
        is_anchor: Tensor,
        others: Tensor,
        gallery: Tensor,
        is_positive: Tensor,
    ) -> Tensor:
        """Compare anchors with positives and, if symmetric, positives with anchors."""
        row, column = ops.expand_dims(is_anchor, 1), ops.expand_dims(is_positive, 0)
        compared = ops.logical_and(row, column)
        if self.symmetric:
            compared = ops.equal(row, column)
        same = same_labels(labels, others)
        return self.pair_loss(
            self.scores(embeddings, gallery),
            ops.logical_and(same, compared),
            ops.logical_and(ops.logical_not(same), compared),
        )


def first_of_pair(labels: Tensor) -> Tensor:
    """Mark the rows that are the 1st, 3rd, 5th, ... of their class in the batch.

    Args:
        labels: Tensor `[B]`.

    Returns:
        Boolean tensor `[B]`.
    """
    positives, _ = label_masks(labels)
    position = ops.arange(ops.shape(labels)[0], dtype="int32")
    earlier = ops.expand_dims(position, 1) > ops.expand_dims(position, 0)
    before = ops.sum(ops.cast(ops.logical_and(positives, earlier), "int32"), axis=1)
    return ops.equal(before % 2, 0)


def _is_in(labels: Tensor, mask: Tensor) -> Tensor:
    """Mark the labels that are among the masked ones."""
    same = same_labels(labels, labels)
    return ops.any(ops.logical_and(same, mask), axis=1)


class _MaskedRows(NamedTuple):
    """The masked rows of a batch, one after the other.

    They are found without a sort, and their gradient is put back without a scatter:
    GPUs are slow at both, and TensorFlow compiles no scatter of unknown size.

    Attributes:
        chosen: The masked rows, int32 `[N]`; 0 where there are no more.
        exists: Whether there is one, boolean `[N]`.
        place: Where each row of the batch is among them, int32 `[B]`; -1 if it is not.
    """

    chosen: Tensor
    exists: Tensor
    place: Tensor

    @classmethod
    def of(cls, mask: Tensor, number: Tensor) -> "_MaskedRows":
        """Find at most `number` rows of a mask `[B]`."""
        position = ops.arange(ops.shape(mask)[0], dtype="int32")
        column = ops.expand_dims(position, 0)
        earlier = ops.logical_and(mask, column < ops.expand_dims(position, 1))
        place = ops.where(mask, ops.sum(ops.cast(earlier, "int32"), axis=1), -1)
        is_there = same_labels(ops.arange(number, dtype="int32"), place)
        chosen = ops.max(ops.where(is_there, column, 0), axis=1)
        return cls(chosen, ops.any(is_there, axis=1), place)

    def of_floats(self, x: Tensor) -> Tensor:
        """Take these rows of floats `[B, dimension]`: `[N, dimension]`."""
        return _taken_once(x, self.chosen, self.place)

    def put_back(self, values: Tensor) -> Tensor:
        """Return the values `[N]` at the rows of the batch, `[B]`; others have any."""
        origin = ops.where(self.exists, self.chosen, -1)
        return _taken_once(values, ops.maximum(self.place, 0), origin)


def _taken_once(x: Tensor, rows: Tensor, origins: Tensor) -> Tensor:
    """Take rows of floats, each of them once where the result counts.

    Args:
        x: Float tensor `[M]` or `[M, dimension]`.
        rows: The rows to take, int32 `[N]`.
        origins: Where each row of x is in the result, int32 `[M]`; -1 if it is not.
    """

    @ops.custom_gradient
    def taken(x: Tensor, rows: Tensor, origins: Tensor) -> Any:
        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = args[0] if upstream is None else upstream
            index = ops.cast(ops.maximum(origins, 0), "int32")
            is_taken = origins >= 0
            if len(x.shape) == 2:
                is_taken = ops.expand_dims(is_taken, 1)
            slopes = ops.where(is_taken, ops.take(upstream, index, axis=0), 0)
            return slopes, ops.zeros_like(rows), ops.zeros_like(origins)

        return ops.take(x, ops.cast(rows, "int32"), axis=0), gradient

    # Its arguments are floats: JAX has no gradient by integers.
    return taken(x, ops.cast(rows, "float32"), ops.cast(origins, "float32"))
