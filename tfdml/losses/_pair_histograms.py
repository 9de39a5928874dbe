"""Count similarities of each anchor's positives and negatives in histograms."""

from keras import ops

from tfdml._core.tensors import Tensor, wide


def pair_histograms(
    scores: Tensor, positives: Tensor, negatives: Tensor, intervals: int
) -> Tensor:
    """Count similarities at nodes -1, -1 + 2 / intervals, ..., 1.

    A similarity between two nodes is shared between them by its distance from each.
    The gradient of one exactly on a node is that of the interval to its right (at 1,
    to its left). Each is put into two bins: O(A G) operations, and A x nodes memory.

    Args:
        scores: Cosine similarities `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`, disjoint from the positives.
        intervals: Number of intervals between the nodes, at least 1.

    Returns:
        Tensor `[A, 2, intervals + 1]`, positives first, float32 or float64: half
        precision cannot count, adding 1 to 256 gives 256 in bfloat16.
    """
    dtype = wide(scores.dtype)
    anchors = ops.shape(scores)[0]
    scores = ops.cast(scores, dtype)
    # Rounding may exceed -1 or 1, where there is no node. (`clip` would turn NaN into a
    # number under XLA.)
    scores = ops.where(scores > 1, 1, ops.where(scores < -1, -1, scores))
    position = (scores + 1) * (intervals / 2)
    lower = ops.floor(ops.stop_gradient(position))
    lower = ops.clip(ops.cast(lower, "int32"), 0, intervals - 1)
    is_pair = ops.logical_or(positives, negatives)
    share = ops.where(is_pair, position - ops.cast(lower, dtype), 0)
    whole = ops.cast(is_pair, dtype)
    row = 2 * ops.expand_dims(ops.arange(anchors, dtype="int32"), 1)
    segment = (row + ops.cast(negatives, "int32")) * intervals + lower
    sums = ops.segment_sum(
        ops.reshape(ops.stack([whole - share, share], axis=-1), (-1, 2)),
        ops.reshape(segment, (-1,)),
        num_segments=2 * anchors * intervals,
    )
    sums = ops.reshape(sums, (-1, 2, intervals, 2))
    left = ops.pad(sums[..., 0], [[0, 0], [0, 0], [0, 1]])
    return left + ops.pad(sums[..., 1], [[0, 0], [0, 0], [1, 0]])
