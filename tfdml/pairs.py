"""Similarities between embeddings and masks of pairs: each numerical care once."""

from typing import Any

import keras
from keras import ops

__all__ = [
    "anchors_per_pair",
    "cosine_similarities",
    "euclidean_distances",
    "label_masks",
    "masked_logsumexp",
    "masked_max",
    "masked_mean",
    "masked_min",
    "softplus",
    "squared_distances",
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


def squared_distances(anchors: Tensor, gallery: Tensor) -> Tensor:
    """Squared Euclidean distance of every anchor to every gallery item.

    ||a - g||^2 = ||a||^2 + ||g||^2 - 2 a.g, at least 0. In float32 a distance far
    smaller than the lengths of its vectors carries their rounding error.

    Args:
        anchors: Float tensor `[A, dimension]`.
        gallery: Float tensor `[G, dimension]`.

    Returns:
        Tensor `[A, G]`.
    """
    lengths = ops.sum(ops.square(anchors), axis=1, keepdims=True)
    others = ops.expand_dims(ops.sum(ops.square(gallery), axis=1), 0)
    products = ops.matmul(anchors, ops.transpose(gallery))
    return ops.relu(lengths + others - 2 * products)


def euclidean_distances(anchors: Tensor, gallery: Tensor) -> Tensor:
    """Euclidean distance of every anchor to every gallery item, `[A, G]`.

    The gradient at a distance of 0 is 0. Arguments are those of `squared_distances`.
    """
    squared = squared_distances(anchors, gallery)
    is_zero = ops.equal(squared, 0)
    # sqrt has an infinite gradient at 0, and 0 * infinity would be NaN.
    root = ops.sqrt(ops.where(is_zero, ops.ones_like(squared), squared))
    return ops.where(is_zero, ops.zeros_like(root), root)


def masked_max(x: Tensor, mask: Tensor, empty: float = 0.0) -> Tensor:
    """Return the largest masked value of each row, `[A]`; `empty` if it has none."""
    largest = ops.max(ops.where(mask, x, -float("inf")), axis=1)
    return ops.where(ops.any(mask, axis=1), largest, empty)


def masked_min(x: Tensor, mask: Tensor, empty: float = 0.0) -> Tensor:
    """Return the smallest masked value of each row, `[A]`; `empty` if it has none."""
    return -masked_max(-x, mask, -empty)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the masked values of each row `[A]`, 0 where there is none."""
    wide = _wide(x.dtype)
    count = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    share = ops.cast(1 / ops.cast(ops.maximum(count, 1), wide), x.dtype)
    return ops.sum(ops.where(mask, x, 0) * share, axis=1)


def anchors_per_pair(mask: Tensor, dtype: str) -> Tensor:
    """Divide the number of anchors by the number of pairs in a mask.

    A sum over the pairs of each anchor, times this, has the mean over all pairs as its
    mean over the anchors.

    Args:
        mask: Boolean tensor `[A, G]`.
        dtype: Float type of the result.

    Returns:
        Scalar; A where the mask is empty.
    """
    wide = _wide(dtype)
    pairs = ops.maximum(ops.sum(ops.cast(mask, "int32")), 1)
    return ops.cast(ops.cast(ops.shape(mask)[0], wide) / ops.cast(pairs, wide), dtype)


def masked_logsumexp(x: Tensor, mask: Tensor) -> Tensor:
    """Compute log sum exp of the masked values of each row, without overflow.

    Args:
        x: Float tensor `[A, G]`.
        mask: Boolean tensor `[A, G]`.

    Returns:
        Tensor `[A]`; -inf where a row has no masked value, with a zero gradient.
    """
    found = ops.any(mask, axis=1, keepdims=True)
    largest = ops.max(ops.where(mask, x, -float("inf")), axis=1, keepdims=True)
    largest = ops.stop_gradient(ops.where(found, largest, ops.zeros_like(largest)))
    # Masked before exp: an overflow that `where` hides still has a NaN gradient.
    shifted = ops.where(mask, x - largest, -float("inf"))
    total = ops.sum(ops.exp(shifted), axis=1, keepdims=True)
    log = ops.log(ops.where(found, total, ops.ones_like(total))) + largest
    return ops.squeeze(ops.where(found, log, -float("inf")), axis=1)


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + e^x) for any x; 0 with a zero gradient at -inf."""
    is_empty = ops.equal(x, -float("inf"))
    value = ops.softplus(ops.where(is_empty, ops.zeros_like(x), x))
    return ops.where(is_empty, ops.zeros_like(value), value)


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


def _wide(dtype: Any) -> str:
    """Type to count in: float16 ends at 65504, bfloat16 counts to 256."""
    return (
        "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
    )
