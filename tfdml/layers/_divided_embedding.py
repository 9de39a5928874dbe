"""Divide an embedding into those of several learners."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import at_least_zero
from tfdml._core.ensembles import learner_weights, learners_of, parts_of
from tfdml._core.tensors import Tensor
from tfdml.ops import unit_rows

_UNIT_ROWS = 100.0
"""Weight of the penalty on the lengths of weight vectors, from the authors' code."""


@keras.saving.register_keras_serializable(package="tfdml")
class DividedEmbedding(keras.layers.Layer):
    """Embed features by an ensemble of learners, each with a part of the embedding.

        z_m = x W_m + b_m,   f = (sqrt(a_1) z_1 / ||z_1||, ..., sqrt(a_M) z_M / ||z_M||)

    with a_m = 2 m / (M (M + 1)), the weight of learner m in boosting. The whole is of
    unit length, and the cosine similarity of two embeddings is the mean of those of the
    learners, weighted by a_m: nothing else is needed to search. It takes the place of
    the last dense layer and of `L2Normalization`; `BIERLoss` trains it.

    With `diversity` d above 0, d times the activation loss is added to the loss of the
    model while it trains, so that for an image few learners are active at once:

        sum_{i<j} mean over images, k and l of (r_ik r_jl)^2
        + 100 sum_m mean over units of (||w||^2 - 1)^2,      r_m = x W_m

    Its gradient goes into W alone, not into the features. The second sum keeps the
    weight vectors w of the units, the columns of W_m, at unit length: smaller ones
    would be a way out.

    Args:
        learners: Lengths of the learners' parts, each at least 1. The paper's are
            (96, 160, 256): larger where a_m is.
        diversity: d, at least 0.
        dtype: Type of the computation and of the output. Defaults to float32, whatever
            the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[batch, features]`. Output shape: `[batch, sum of learners]`. A part
    that is zero before it is scaled stays zero.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> layer = DividedEmbedding((2, 4))
        >>> embeddings = layer(np.ones((3, 8), "float32"))
        >>> tuple(embeddings.shape), round(float(ops.sum(embeddings[0] ** 2)), 5)
        ((3, 6), 1.0)

    Reference:
        Opitz, Waltner, Possegger and Bischof, BIER: Boosting Independent Embeddings
        Robustly, ICCV 2017.
    """

    def __init__(
        self,
        learners: Sequence[int],
        *,
        diversity: float = 0.0,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.learners = learners_of(learners)
        self.diversity = at_least_zero("diversity", diversity)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the weights of all learners."""
        width = sum(self.learners)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], width),
            initializer="glorot_uniform",
        )
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return the embeddings, and add the activation loss while training."""
        x = ops.cast(inputs, self.compute_dtype)
        if training and self.diversity:
            self.add_loss(self.diversity * self._activation_loss(x))
        parts = parts_of(ops.matmul(x, self.kernel) + self.bias, self.learners)
        weights = learner_weights(len(parts))
        return ops.concatenate(
            [w**0.5 * unit_rows(p) for w, p in zip(weights, parts, strict=True)],
            axis=1,
        )

    def _activation_loss(self, x: Tensor) -> Tensor:
        active = parts_of(ops.matmul(ops.stop_gradient(x), self.kernel), self.learners)
        # The mean over k and l of a product is the product of the means.
        means = [ops.mean(ops.square(part), axis=1) for part in active]
        total = 0.0
        for j, later in enumerate(means):
            for earlier in means[:j]:
                total += ops.mean(earlier * later)
        for kernel in parts_of(self.kernel, self.learners):
            lengths = ops.sum(ops.square(kernel), axis=0)
            total += _UNIT_ROWS * ops.mean(ops.square(lengths - 1))
        return total

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return `[batch, sum of learners]`."""
        return (input_shape[0], sum(self.learners))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "learners": list(self.learners),
            "diversity": self.diversity,
        }
