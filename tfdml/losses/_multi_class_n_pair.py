"""Compute the multi-class N-pair loss of a batch of pairs."""

from typing import Any

from keras import ops

from tfdml._core.arguments import boolean
from tfdml._core.control_flow import cond
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
        l2_weight: Weight of the mean squared length, at least 0. 0.001 to 0.01 in
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
        batch = ops.shape(labels)[0]
        half = batch - batch // 2
        gallery = _rows(second, half, labels, embeddings, second)
        with_second = _is_in(labels, gallery[0], gallery[2])
        anchors = ops.logical_and(first, with_second)

        def of_half() -> Tensor:
            """Compute the values of B/2 rows that include all anchors."""
            chosen = _rows(anchors, half, labels, embeddings, anchors)
            values = self._compare(*chosen, *gallery)
            scale = ops.cast(batch, values.dtype) / ops.cast(half, values.dtype)
            values = values * scale
            positions = _rows(anchors, half, ops.arange(batch))[0]
            return ops.segment_sum(values, positions, num_segments=batch)

        # Classes of 3 rows have 2 anchors: there may be more than B/2.
        return cond(
            ops.sum(ops.cast(anchors, "int32")) <= half,
            of_half,
            lambda: self._compare(labels, embeddings, anchors, *gallery),
        )

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
    position = ops.arange(ops.shape(labels)[0])
    earlier = ops.expand_dims(position, 1) > ops.expand_dims(position, 0)
    before = ops.sum(ops.cast(ops.logical_and(positives, earlier), "int32"), axis=1)
    return ops.equal(before % 2, 0)


def _is_in(labels: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """Mark the labels that are among the masked others."""
    same = same_labels(labels, others)
    return ops.any(ops.logical_and(same, ops.expand_dims(mask, 0)), axis=1)


def _rows(mask: Tensor, number: int, *columns: Tensor) -> list[Tensor]:
    """Take a number of rows of each tensor, the masked rows first."""
    order = ops.argsort(ops.cast(ops.logical_not(mask), "int32"))[:number]
    return [ops.take(column, order, axis=0) for column in columns]
