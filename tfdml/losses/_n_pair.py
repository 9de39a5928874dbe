"""N-pair losses: each positive pair against all negatives of its anchor."""

from typing import Any

import keras
from keras import ops

from tfdml._arguments import at_least_zero
from tfdml.losses._base import PairLoss
from tfdml.losses._softmax import one_against_negatives
from tfdml.ops import Tensor, cond, label_masks, products, same_labels, unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class NPairLoss(PairLoss):
    """N-pair loss over all positive pairs: a softmax of one positive and the negatives.

    With S the dot product of two embeddings, a positive pair (a, p) costs

        log(1 + sum over negatives n of a of e^(S_an - S_ap))

    which is -log(e^S_ap / (e^S_ap + sum_n e^S_an)), and the loss is the mean over all
    ordered positive pairs of the batch. The value of an anchor is the sum over its
    pairs, times (anchors / pairs), so that the mean over the batch is the loss. To it
    comes `l2_weight` times the mean squared length of the embeddings.

    An anchor without positives or without negatives adds 0 (but its length counts, as
    any). Dot products are not normalised in the paper, which is why it holds lengths
    down by the L2 term; embeddings so long that their dot product overflows have no
    finite loss. On unit vectors (`normalize=True`) the loss cannot come near 0: for
    these `NTXentLoss` divides by a temperature.

    Args:
        l2_weight: Weight of the mean squared length, at least 0. 0.001 to 0.01 in
            published code.
        normalize: Whether similarities are those of unit vectors.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        ValueError: `l2_weight` is out of range.

    Example:
        >>> loss = NPairLoss()
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> round(float(loss([7, 7, 9], embeddings)), 4)  # log(1 + e), log(1 + e^0)
        1.0032

    Reference:
        Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective,
        NIPS 2016, Eq. 3.
    """

    def __init__(
        self,
        l2_weight: float = 0.0,
        *,
        normalize: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "n_pair_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        self.l2_weight: float = at_least_zero("l2_weight", l2_weight)
        self.normalize: bool = normalize

    @property
    def is_pairwise(self) -> bool:
        """Whether `pair_loss` is the whole loss: without a term on the lengths."""
        return type(self) is NPairLoss and not self.l2_weight

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compare the batch with itself and add the squared length of each row."""
        values = self._values(labels, embeddings)
        if self.l2_weight:
            values = values + self.l2_weight * ops.sum(ops.square(embeddings), axis=1)
        return values

    def _values(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        scores = self.scores(embeddings, embeddings)
        return self.pair_loss(scores, *label_masks(labels))

    def scores(self, anchors: Tensor, gallery: Tensor) -> Tensor:
        """Compute dot products `[A, G]`."""
        if self.normalize:
            anchors, gallery = unit_rows(anchors), unit_rows(gallery)
        return products(anchors, gallery)

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of each anchor. See `PairLoss.pair_loss`."""
        return one_against_negatives(scores, positives, negatives)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "l2_weight": self.l2_weight,
            "normalize": self.normalize,
        }


@keras.saving.register_keras_serializable(package="tfdml")
class MultiClassNPairLoss(NPairLoss):
    """Multi-class N-pair loss: one pair a class, negatives are the others' positives.

    The batch holds N classes with two rows each. The first row of a class is its
    anchor f, the second its positive f+:

        mean over i of log(1 + sum over j != i of e^(f_i.f+_j - f_i.f+_i))

    plus `l2_weight` times the mean squared length of the rows. The value of an anchor
    is twice its cost, that of the other rows 0, so that the mean over the batch is
    the mean over the pairs. With `symmetric=True` the loss is averaged with the one in
    which anchors and positives change places; then each row has its own cost.

    It needs a batch that is compared with itself. The rows of a class are told apart
    by their order in the batch, and classes may be mixed. A class with more rows than
    two takes part with all of them, anchors and positives in turn; a class with one
    row is a negative to others at most.

    Args:
        symmetric: Whether positives are anchors too.
        l2_weight: Weight of the mean squared length, at least 0. 0.001 to 0.01 in
            published code.
        normalize: Whether similarities are those of unit vectors.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

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

    def __init__(
        self,
        symmetric: bool = False,
        l2_weight: float = 0.0,
        *,
        normalize: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "multi_class_n_pair_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            l2_weight,
            normalize=normalize,
            reduction=reduction,
            name=name,
            dtype=dtype,
        )
        self.symmetric: bool = symmetric

    def _values(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        first = first_of_pair(labels)
        second = ops.logical_not(first)
        if self.symmetric:
            return self._compared(labels, embeddings, first, labels, embeddings, second)
        batch = ops.shape(labels)[0]
        half = batch - batch // 2
        gallery = _rows(second, half, labels, embeddings, second)
        with_second = _is_in(labels, gallery[0], gallery[2])
        anchors = ops.logical_and(first, with_second)

        def of_half() -> Tensor:
            """Compute the values of B/2 rows, among them all anchors."""
            chosen = _rows(anchors, half, labels, embeddings, anchors)
            values = self._compared(*chosen, *gallery)
            scale = ops.cast(batch, values.dtype) / ops.cast(half, values.dtype)
            values = values * scale
            places = _rows(anchors, half, ops.arange(batch))[0]
            return ops.segment_sum(values, places, num_segments=batch)

        # Classes of 3 rows have 2 anchors: there may be more than B/2.
        return cond(
            ops.sum(ops.cast(anchors, "int32")) <= half,
            of_half,
            lambda: self._compared(labels, embeddings, anchors, *gallery),
        )

    def _compared(
        self,
        labels: Tensor,
        embeddings: Tensor,
        is_anchor: Tensor,
        others: Tensor,
        gallery: Tensor,
        is_positive: Tensor,
    ) -> Tensor:
        """Compare rows with a gallery, anchors with positives alone or reversed."""
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

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "symmetric": self.symmetric}


def first_of_pair(labels: Tensor) -> Tensor:
    """Say which rows are the 1st, 3rd, 5th, ... of their class in the batch.

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


def _is_in(labels: Tensor, others: Tensor, which: Tensor) -> Tensor:
    same = same_labels(labels, others)
    return ops.any(ops.logical_and(same, ops.expand_dims(which, 0)), axis=1)


def _rows(wanted: Tensor, count: int, *columns: Tensor) -> list[Tensor]:
    """Take so many rows of each tensor, the wanted ones first."""
    order = ops.argsort(ops.cast(ops.logical_not(wanted), "int32"))[:count]
    return [ops.take(column, order, axis=0) for column in columns]
