"""Compute the loss that has given pair weights."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.losses._base import PairLoss
from tfdml.messages import shown
from tfdml.ops import masked_logsumexp


class PairWeightedLoss(PairLoss):
    """The loss whose pair weights are a given function.

    General Pair Weighting describes a pair-based loss by the weight that it gives to
    each pair. This class goes the opposite way, from weights w to a loss:

        L_i = sum_{j negative} w_ij S_ij - sum_{j positive} w_ij S_ij

    with S the cosine similarity and w held constant, so that dL/dS_ij is -w_ij for a
    positive and w_ij for a negative (the F of the paper). Only the gradient has a
    meaning: the value may be negative and need not decrease during training.

    An anchor whose pairs have no weight adds 0.

    Args:
        weight_function: Maps `(scores, positives, negatives, **arguments)`, tensors
            `[A, G]` as in `PairLoss.pair_loss`, to the weights `[A, G]`, at least 0.
            Weights outside both masks do not count. To save a model that is compiled
            with the loss, register the function with
            `keras.saving.register_keras_serializable`; its registered name, such as
            "tfdml>binlifted_weights", may then be given instead of the function.
        arguments: Further arguments of the function, by name.
        **kwargs: `reduction`, `name` and `dtype`, as in `keras.losses.Loss`.

    Raises:
        TypeError: `weight_function` cannot be called.
        ValueError: `weight_function` is not the name of a registered function.

    Example:
        >>> loss = PairWeightedLoss(binlifted_weights, arguments={"beta": 40.0})
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> value = loss([7, 7, 9], embeddings)

    Reference:
        Wang, Han, Huang, Dong and Scott, Multi-Similarity Loss with General Pair
        Weighting for Deep Metric Learning, CVPR 2019.
    """

    def __init__(
        self,
        weight_function: Callable[..., Tensor] | str,
        *,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(weight_function, str):
            weight_function = _registered(weight_function)
        if not callable(weight_function):
            raise TypeError(
                "`weight_function` must be a function of scores, positives and "
                f"negatives. Received: {shown(weight_function)}."
            )
        self.weight_function = weight_function
        self.arguments: dict[str, Any] = dict(arguments or {})

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute L_i of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        # Stopped before the weights are computed: not even a NaN gradient passes.
        fixed = ops.stop_gradient(scores)
        weights = self.weight_function(fixed, positives, negatives, **self.arguments)
        weights = ops.stop_gradient(ops.cast(weights, scores.dtype))
        signed = ops.where(negatives, weights, ops.where(positives, -weights, 0))
        used = ops.where(ops.logical_or(positives, negatives), scores, 0)
        return ops.sum(signed * used, axis=1)


def _registered(name: str) -> Callable[..., Tensor]:
    """Return the function that is registered with Keras under a name."""
    function = keras.saving.get_registered_object(name)
    if function is None:
        raise ValueError(
            "`weight_function` must be a function, or the name of one registered by "
            "`keras.saving.register_keras_serializable`, such as "
            f"'tfdml>binlifted_weights'. Received: {shown(name)}."
        )
    return function


@keras.saving.register_keras_serializable(package="tfdml")
def binlifted_weights(
    scores: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    threshold: float = 0.5,
) -> Tensor:
    """Compute the weights of BinLifted, of binomial deviance and lifted structure.

    With lambda the threshold, the weight of a negative (Eq. 10 of the supplement) and,
    by analogy, of a positive is

        w_ij = 1/2 (sigmoid(beta (S_ij - lambda)) + softmax_{k negative}(beta S_ik)_j)
        w_ij = 1/2 (sigmoid(alpha (lambda - S_ij))
                    + softmax_{k positive}(-alpha S_ik)_j)

    The supplement uses them to compare the contributions of a pair's own similarity and
    of its similarity relative to the anchor's other pairs. Positives and negatives are
    independent: an anchor without positives still pushes its negatives away.

    Args:
        scores: Cosine similarities `[A, G]`.
        positives: Boolean tensor `[A, G]`.
        negatives: Boolean tensor `[A, G]`.
        alpha: Scale of the positives, above 0.
        beta: Scale of the negatives, above 0.
        threshold: lambda, the similarity at which a pair's own term is 1/4.

    Returns:
        Tensor `[A, G]` of values from 0 to 1; 0 outside both masks.

    Reference:
        Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric
        Learning, CVPR 2019, supplement, Eq. 10.
    """
    pos = _own_and_relative(-alpha * scores, -alpha * threshold, positives)
    neg = _own_and_relative(beta * scores, beta * threshold, negatives)
    return pos + neg


def _own_and_relative(x: Tensor, threshold: float, mask: Tensor) -> Tensor:
    """Compute 1/2 (sigmoid(x - threshold) + softmax over the masked x), else 0."""
    total = ops.expand_dims(masked_logsumexp(x, mask), 1)
    relative = ops.exp(ops.where(mask, x - total, -float("inf")))
    own = ops.where(mask, ops.sigmoid(x - threshold), 0)
    return 0.5 * (own + relative)
