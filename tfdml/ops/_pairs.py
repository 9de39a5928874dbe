"""Compute similarities of embeddings and masks of pairs, in a stable way."""

import keras
from keras import ops

from tfdml._core.tensors import Tensor, count, products, same_labels


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
    """Compute the cosine similarity of every anchor with every gallery item.

    Args:
        anchors: Float tensor `[A, dimension]`, with rows of any length.
        gallery: Float tensor `[G, dimension]`.

    Returns:
        Tensor `[A, G]` of values in -1 to 1, up to rounding.
    """
    return products(unit_rows(anchors), unit_rows(gallery))


def squared_distances(anchors: Tensor, gallery: Tensor) -> Tensor:
    """Compute the squared Euclidean distance of every anchor to every gallery item.

    ||a - g||^2 = ||a||^2 + ||g||^2 - 2 a.g, at least 0. In float32 a distance much
    smaller than the lengths of its vectors has their rounding error, and lengths beyond
    1e18 are too long: the distance is NaN.

    Args:
        anchors: Float tensor `[A, dimension]`.
        gallery: Float tensor `[G, dimension]`.

    Returns:
        Tensor `[A, G]`.
    """
    lengths = ops.sum(ops.square(anchors), axis=1, keepdims=True)
    others = ops.expand_dims(ops.sum(ops.square(gallery), axis=1), 0)
    return ops.relu(lengths + others - 2 * products(anchors, gallery))


def euclidean_distances(anchors: Tensor, gallery: Tensor) -> Tensor:
    """Compute the Euclidean distance of every anchor to every gallery item, `[A, G]`.

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
    """Return the mean of the masked values of each row, `[A]`; 0 if it has none."""
    counts = ops.expand_dims(count(mask, x.dtype, axis=1), 1)
    share = ops.cast(1 / ops.maximum(counts, 1), x.dtype)
    return ops.sum(ops.where(mask, x, 0) * share, axis=1)


def masked_logsumexp(x: Tensor, mask: Tensor, axis: int = 1) -> Tensor:
    """Compute log sum exp of the masked values of each row, without overflow.

    Args:
        x: Float tensor `[A, G]`.
        mask: Boolean tensor `[A, G]`.
        axis: 1 for rows, 0 for columns.

    Returns:
        Tensor `[A]`, or `[G]` for columns; -inf without masked values, with a zero
        gradient.
    """
    has_value = ops.any(mask, axis=axis, keepdims=True)
    largest = ops.max(ops.where(mask, x, -float("inf")), axis=axis, keepdims=True)
    largest = ops.stop_gradient(ops.where(has_value, largest, ops.zeros_like(largest)))
    # Masked before exp: an overflow that `where` hides still has a NaN gradient.
    shifted = ops.where(mask, x - largest, -float("inf"))
    total = ops.sum(ops.exp(shifted), axis=axis, keepdims=True)
    log = ops.log(ops.where(has_value, total, ops.ones_like(total))) + largest
    return ops.squeeze(ops.where(has_value, log, -float("inf")), axis=axis)


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + e^x) for any x; 0 with a zero gradient at -inf."""
    is_finite = ops.isfinite(x)
    safe = ops.where(is_finite, x, ops.zeros_like(x))
    if keras.backend.backend() == "tensorflow":
        value = _fast_softplus(safe)
    else:
        value = ops.softplus(safe)
    beyond = ops.where(ops.equal(x, -float("inf")), ops.zeros_like(x), x)
    return ops.where(is_finite, value, beyond)


def _fast_softplus(x: Tensor) -> Tensor:
    """Compute softplus with one exponential and a polynomial.

    log(1 + e) = 2 artanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...) with s = e / (2 + e), which
    is at most 1/3 for e = e^-|x|. As precise as TensorFlow's own, up to the last digit;
    that one's log1p under XLA on CPUs (TensorFlow 2.20) dominates the time of some
    losses.
    """
    fixed = ops.stop_gradient(x)
    e = ops.exp(-ops.abs(fixed))
    s = e / (2 + e)
    terms = 16 if keras.backend.standardize_dtype(x.dtype) == "float64" else 8
    series = 0.0
    for term in reversed(range(terms)):
        series = series * ops.square(s) + 1 / (2 * term + 1)
    value = ops.relu(fixed) + 2 * s * series
    # A term that is 0 and has the gradient.
    slope = ops.where(fixed >= 0, 1, e) / (1 + e)
    return value + slope * (x - fixed)


def label_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mark which pairs of a batch are positive and which are negative.

    A pair is positive if its labels are equal and its items have different positions,
    so duplicates are positives.

    Args:
        labels: Tensor `[B]`.

    Returns:
        Two boolean tensors `[B, B]`: positives and negatives. Row i belongs to
        anchor i. The diagonal is False in both.
    """
    same = same_labels(labels, labels)
    position = ops.arange(ops.shape(labels)[0], dtype="int32")
    itself = same_labels(position, position)
    return ops.logical_and(same, ops.logical_not(itself)), ops.logical_not(same)
