"""Average the costs of pairs and triplets over those that a batch has."""

from keras import ops

from tfdml._core.tensors import Tensor, count, wide
from tfdml.ops import masked_logsumexp, softplus


def scale_to_mean(values: Tensor, total: Tensor) -> Tensor:
    """Scale values `[A]` so that their mean over anchors is their sum over a total.

    Args:
        values: Float tensor `[A]`.
        total: How many things the sum is over, scalar, such as a `count` of pairs.

    Returns:
        Tensor `[A]`: values times A / total, 0 if the total is 0.
    """
    kind = wide(values.dtype)
    anchors = ops.cast(ops.shape(values)[0], kind)
    is_empty = ops.equal(total, 0)
    scale = anchors / ops.cast(ops.where(is_empty, 1, total), kind)
    return values * ops.cast(ops.where(is_empty, 0, scale), values.dtype)


def softmax_costs(logits: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Compute the cross-entropy of each positive against the negatives of its anchor.

    Args:
        logits: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.

    Returns:
        Tensor `[A]`, the sum over the pairs of an anchor times (anchors / pairs): its
        mean over the anchors is the mean over the pairs.
    """
    negative_logits = ops.expand_dims(masked_logsumexp(logits, negatives), 1)
    # Masked before the difference: other entries may be any number.
    values = softplus(negative_logits - ops.where(positives, logits, 0))
    values = ops.sum(ops.where(positives, values, 0), axis=1)
    return scale_to_mean(values, count(positives, values.dtype))


def weighted_hinges(
    distances: Tensor, positives: Tensor, weights: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Sum the hinges of each anchor's triplets, given the weights of its pairs.

    Args:
        distances: Float tensor `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        weights: Weights `[A, G]` of `hinge_weights` or `semi_hard_weights`.
        margin: Added to D_ap.

    Returns:
        Sum of D_ap - D_an + margin over the triplets of each anchor, `[A]`, and the
        number of these triplets, `[A]`.
    """
    active = ops.sum(ops.where(positives, weights, 0), axis=1)
    # Pairs of weight 0 stay in the sum, so that a NaN among them shows.
    return ops.sum(weights * distances, axis=1) + margin * active, active
