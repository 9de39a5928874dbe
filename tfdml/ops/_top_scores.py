"""Find the largest scores of each row."""

import keras
from keras import ops

from tfdml._core.devices import has_gpu
from tfdml._core.tensors import Tensor

FEW_TOP_SCORES = 16
"""Up to this number of largest scores, taking them in turn is faster than sorting."""


def top_scores(scores: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest masked scores of each row, largest first.

    Args:
        scores: Float tensor `[A, G]`.
        mask: Boolean tensor `[A, G]`.
        k: Number of scores, at least 1; may be larger than G.

    Returns:
        Scores `[A, k]`, and a boolean tensor `[A, k]` that is False where a row has
        no such score (there the score is -inf).
    """
    masked = ops.where(mask, scores, -float("inf"))
    exists = ops.arange(k, dtype="int32") < ops.sum(
        ops.cast(mask, "int32"), axis=1, keepdims=True
    )
    if k <= FEW_TOP_SCORES and _top_k_is_slow():
        values = ops.where(exists, top_scores_in_turn(masked, k), -float("inf"))
        return values, exists
    columns = scores.shape[1]
    if columns is None or columns < k:
        # `top_k` refuses k above the number of columns, which may be unknown in `fit`.
        masked = ops.pad(masked, [[0, 0], [0, k]], constant_values=-float("inf"))
    values, _ = ops.top_k(masked, k, sorted=True)
    return values, exists


def top_scores_in_turn(scores: Tensor, k: int) -> Tensor:
    """Find the k largest scores of each row in k passes, largest first, `[A, k]`.

    Args:
        scores: Float tensor `[A, G]`, -inf where an entry does not count.
        k: Number of scores. If a row has fewer, the rest are arbitrary.
    """
    columns = ops.expand_dims(ops.arange(ops.shape(scores)[1], dtype="int32"), 0)
    fixed = ops.stop_gradient(scores)
    # Backends differ in the largest of values with a NaN: here it is the NaN.
    fixed = ops.where(ops.isnan(fixed), float("inf"), fixed)
    rest, positions = fixed, []
    for _ in range(k):
        position = ops.cast(ops.argmax(rest, axis=1, keepdims=True), "int32")
        value = ops.take_along_axis(fixed, position, axis=1)
        # Equal scores are taken by position, as by `argmax`.
        later = ops.logical_and(ops.equal(fixed, value), columns > position)
        after = ops.logical_or(fixed < value, later)
        rest = ops.where(after, fixed, -float("inf"))
        positions.append(position)
    return ops.take_along_axis(scores, ops.concatenate(positions, axis=1), axis=1)


def _top_k_is_slow() -> bool:
    """Return whether `top_k` is compiled by XLA for a GPU: there it sorts the rows."""
    backend = keras.backend.backend()
    if backend == "torch" or not has_gpu():
        return False
    if backend == "jax":
        return True
    import tensorflow as tf

    # Keras compiles by XLA where there is a GPU, unless told not to.
    return not tf.executing_eagerly()
