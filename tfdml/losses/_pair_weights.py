"""Compute the weight that a loss gives to each pair (General Pair Weighting)."""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from tfdml._core.batches import checked_batch
from tfdml._core.control_flow import without_autograph
from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.losses._query_gallery import check_pairwise
from tfdml.messages import shown
from tfdml.ops import cosine_similarities, label_masks


@without_autograph
def pair_weights(loss: PairLoss, labels: Tensor, embeddings: Tensor) -> Tensor:
    """Compute w_ij = |dL/dS_ij|, the weight of each pair of a batch in a loss.

    L = sum_i L_i is the sum of the losses of all anchors and S the matrix of scores
    that the loss compares: cosine similarities, or distances for a loss that works on
    distances. Row i holds the weights of anchor i. S_ij and S_ji count as two numbers,
    as they belong to different anchors. There is no factor 1/B unless the loss itself
    has one; divide by B for the weights in the mean over the batch.

    A pair that the loss does not use has the weight 0, and so has the diagonal.

    Args:
        loss: A `PairLoss`. Its `reduction` is not used.
        labels: Class ids `[B]` or `[B, 1]`, as every loss takes them.
        embeddings: Embeddings `[B, dimension]`.

    Returns:
        Tensor `[B, B]` of the loss's type, at least 0.

    Raises:
        TypeError: The loss is not a function of a matrix of scores alone: see
            `tfdml.losses.check_pairwise`.
        ValueError: The shapes do not fit, or a label is not a whole number.

    Example:
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> weights = pair_weights(TopKPrecisionLoss(k=1), [7, 7, 9], embeddings)
        >>> np.asarray(weights).tolist()
        [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]

    Reference:
        Wang, Han, Huang, Dong and Scott, Multi-Similarity Loss with General Pair
        Weighting for Deep Metric Learning, CVPR 2019.
    """
    check_pairwise(loss)
    labels, embeddings = loss.checked(labels, embeddings)
    positives, negatives = label_masks(labels)
    gradient = _gradient(
        lambda scores: ops.sum(loss.pair_loss(scores, positives, negatives)),
        loss.scores(embeddings, embeddings),
    )
    return ops.abs(gradient)


def weighted_pairs(
    loss: PairLoss, labels: Tensor, embeddings: Tensor
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """List the similarity and the weight of every pair of a batch, ready for a plot.

    Args:
        loss: Any `PairLoss`.
        labels: Class ids `[B]` or `[B, 1]`.
        embeddings: Embeddings `[B, dimension]`.

    Returns:
        For "positive" and "negative" pairs two arrays of one entry per ordered pair:
        the cosine similarities, ascending, and the weights of `pair_weights`.

    Raises:
        TypeError: As in `pair_weights`.
        ValueError: As in `pair_weights`.

    Example:
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        >>> pairs = weighted_pairs(TopKPrecisionLoss(k=1), [7, 7, 9], embeddings)
        >>> [values.tolist() for values in pairs["negative"]]
        [[0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
    """
    weights = ops.convert_to_numpy(pair_weights(loss, labels, embeddings))
    labels, embeddings = checked_batch(labels, embeddings, loss.dtype)
    scores = ops.convert_to_numpy(cosine_similarities(embeddings, embeddings))
    pairs = {}
    for kind, mask in zip(("positive", "negative"), label_masks(labels), strict=True):
        chosen = ops.convert_to_numpy(mask)
        order = np.argsort(scores[chosen], kind="stable")
        pairs[kind] = scores[chosen][order], weights[chosen][order]
    return pairs


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the gradient of a scalar function at x; Keras offers no such operation."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(value, x, unconnected_gradients=zero)
    if backend == "jax":
        import jax

        return jax.grad(function)(x)
    if backend == "torch":
        import torch

        with torch.enable_grad():
            x = x.detach().requires_grad_()
            # Adding a zero connects a constant to x.
            return torch.autograd.grad(function(x) + 0 * x.sum(), x)[0]
    raise RuntimeError(f"Keras cannot differentiate a function on {shown(backend)}.")
