"""A loss made from given pair weights, and BinLifted, the worked example."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from tfdml.losses._base import PairLoss
from tfdml.ops import Tensor, masked_logsumexp


@keras.saving.register_keras_serializable(package="tfdml")
class PairWeightedLoss(PairLoss):
    """The loss whose pair weights are a function of your choice.

    By General Pair Weighting a pair-based loss is known by the weight it gives to each
    pair. This goes the other way: from weights w to the loss that has them,

        L_i = sum_{j negative} w_ij S_ij - sum_{j positive} w_ij S_ij

    with S cosine similarities and w held constant, so that dL/dS_ij is -w_ij for a
    positive and w_ij for a negative (the F of the paper). Only the gradient means
    something: the value may be negative and need not fall in training.

    An anchor with no pair that has a weight adds 0.

    Args:
        weight_function: Maps `(scores, positives, negatives, **arguments)`, tensors
            `[A, G]` as in `PairLoss.pair_loss`, to the weights `[A, G]`, at least 0.
            Weights outside both masks do not count. To save a model that is compiled
            with the loss, register the function with
            `keras.saving.register_keras_serializable`; then its name there, such as
            "tfdml>binlifted_weights", does for the function, too.
        arguments: Further arguments of the function, by name.
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Type that the loss is computed in.

    Raises:
        TypeError: `weight_function` cannot be called.
        ValueError: `weight_function` is no name of a registered function.

    Example:
        >>> loss = PairWeightedLoss(binlifted_weights, {"beta": 40.0})
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> value = loss([7, 7, 9], embeddings)

    Reference:
        Wang, Han, Huang, Dong and Scott, Multi-Similarity Loss with General Pair
        Weighting for Deep Metric Learning, CVPR 2019.
    """

    def __init__(
        self,
        weight_function: Callable[..., Tensor] | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "pair_weighted_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(reduction=reduction, name=name, dtype=dtype)
        if isinstance(weight_function, str):
            weight_function = _registered(weight_function)
        if not callable(weight_function):
            raise TypeError(
                "`weight_function` must be a function of scores, positives and "
                f"negatives. Received: {weight_function!r}."
            )
        self.weight_function = weight_function
        self.arguments: dict[str, Any] = dict(arguments or {})

    def pair_loss(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute L_i of each anchor, `[A]`. See `PairLoss.pair_loss`."""
        # Held constant before they are computed: no gradient passes, not even a NaN.
        fixed = ops.stop_gradient(scores)
        weights = self.weight_function(fixed, positives, negatives, **self.arguments)
        weights = ops.stop_gradient(ops.cast(weights, scores.dtype))
        signed = ops.where(negatives, weights, ops.where(positives, -weights, 0))
        used = ops.where(ops.logical_or(positives, negatives), scores, 0)
        return ops.sum(signed * used, axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        function = keras.saving.serialize_keras_object(self.weight_function)
        return {
            **super().get_config(),
            "weight_function": function,
            "arguments": dict(self.arguments),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PairWeightedLoss":
        """Build the loss from the dictionary of `get_config`."""
        config = dict(config)
        if not callable(config["weight_function"]):
            config["weight_function"] = keras.saving.deserialize_keras_object(
                config["weight_function"]
            )
        return cls(**config)


def _registered(name: str) -> Callable[..., Tensor]:
    found = keras.saving.get_registered_object(name)
    if found is None:
        raise ValueError(
            "`weight_function` must be a function, or the name under which one is "
            "registered by `keras.saving.register_keras_serializable`, such as "
            f"'tfdml>binlifted_weights'. Received: {name!r}."
        )
    return found


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
    """Weights of BinLifted, the mean of binomial deviance and lifted structure.

    With lambda the threshold, of a negative (Eq. 10 of the supplement) and, in
    analogy, of a positive:

        w_ij = 1/2 (sigmoid(beta (S_ij - lambda)) + softmax_{k negative}(beta S_ik)_j)
        w_ij = 1/2 (sigmoid(alpha (lambda - S_ij))
                    + softmax_{k positive}(-alpha S_ik)_j)

    The supplement uses them to ask what a pair's own similarity and what its
    similarity relative to the others of the anchor contribute. The two kinds of pairs
    are independent: an anchor without positives still pushes its negatives away.

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
    right = _own_and_relative(-alpha * scores, -alpha * threshold, positives)
    wrong = _own_and_relative(beta * scores, beta * threshold, negatives)
    return right + wrong


def _own_and_relative(x: Tensor, threshold: float, mask: Tensor) -> Tensor:
    """1/2 (sigmoid(x - threshold) + softmax over the masked x), 0 elsewhere."""
    total = ops.expand_dims(masked_logsumexp(x, mask), 1)
    relative = ops.exp(ops.where(mask, x - total, -float("inf")))
    own = ops.where(mask, ops.sigmoid(x - threshold), 0)
    return 0.5 * (own + relative)
