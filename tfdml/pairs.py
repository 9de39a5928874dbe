"""Similarities between embeddings and masks of pairs: each numerical care once."""

from typing import Any

from keras import ops

__all__ = [
    "cosine_similarities",
    "label_masks",
    "top_scores",
    "unit_rows",
]

Tensor = Any
"""A tensor of whichever backend Keras runs on."""


def unit_rows(x: Tensor) -> Tensor:
    """Scale the vectors along the last axis to unit length: x / ||x||.

    Each vector is first divided by its largest absolute value, so that neither huge
    nor tiny vectors overflow or underflow when they are squared. A zero vector stays
    zero and gets a zero gradient.

    Args:
        x: Float tensor `[..., dimension]`.

    Returns:
        Tensor like `x`.
    """
    # The result does not depend on the scale, so the gradient need not pass it.
    largest = ops.stop_gradient(ops.max(ops.abs(x), axis=-1, keepdims=True))
    is_zero = ops.equal(largest, 0)
    scaled = x / ops.where(is_zero, ops.ones_like(largest), largest)
    squared = ops.sum(ops.square(scaled), axis=-1, keepdims=True)
    # Both branches of `where` stay finite: an infinite unused one has a NaN gradient.
    unit = scaled * ops.rsqrt(ops.where(is_zero, ops.ones_like(squared), squared))
    return ops.where(is_zero, ops.zeros_like(unit), unit)


def cosine_similarities(anchors: Tensor, gallery: Tensor) -> Tensor:
    """Cosine similarity of every anchor with every gallery item.

    Args:
        anchors: Float tensor `[A, dimension]`, of any length of row.
        gallery: Float tensor `[G, dimension]`.

    Returns:
        Tensor `[A, G]` of values in -1 to 1, up to rounding.
    """
    return ops.matmul(unit_rows(anchors), ops.transpose(unit_rows(gallery)))


def label_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Say which pairs of a batch are positive and which are negative.

    A pair is positive when its labels are equal and its items are not one and the
    same; an item is told from itself by its position, so duplicates are positives.

    Args:
        labels: Tensor `[B]`.

    Returns:
        Two boolean tensors `[B, B]`: positives and negatives. Row i belongs to
        anchor i. The diagonal is False in both.
    """
    same = ops.equal(ops.expand_dims(labels, 1), ops.expand_dims(labels, 0))
    position = ops.arange(ops.shape(labels)[0])
    itself = ops.equal(ops.expand_dims(position, 1), ops.expand_dims(position, 0))
    return ops.logical_and(same, ops.logical_not(itself)), ops.logical_not(same)


def top_scores(scores: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest masked scores of each row, largest first.

    Args:
        scores: Float tensor `[A, G]`.
        mask: Boolean tensor `[A, G]`.
        k: How many, at least 1; may be larger than G.

    Returns:
        Scores `[A, k]`, and a boolean tensor `[A, k]` that is False where a row has
        no such score (there the score is -inf).
    """
    masked = ops.where(mask, scores, -float("inf"))
    columns = scores.shape[1]
    if columns is None or columns < k:
        # `top_k` refuses k above the number of columns, which `fit` may not know.
        masked = ops.pad(masked, [[0, 0], [0, k]], constant_values=-float("inf"))
    values, _ = ops.top_k(masked, k, sorted=True)
    found = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    return values, ops.arange(k) < found
