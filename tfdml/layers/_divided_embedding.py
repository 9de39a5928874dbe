"""Divide an embedding into those of several learners."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import at_least_zero, whole
from tfdml._core.ensembles import learner_weights, learners_of, parts_of
from tfdml._core.tensors import Tensor
from tfdml.ops import unit_rows


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
        + lambda sum_m mean over units of (||w||^2 - 1)^2,      r_m = x W_m

    Its gradient goes into W alone, not into the features. The second sum keeps the
    weight vectors w of the units, the columns of W_m, at unit length: smaller ones
    would be a way out.

    With `adversary` above 0, it is the adversarial loss of A-BIER instead. For each
    two learners i < j, a network of one hidden layer learns to find in r_j what is
    correlated with r_i, and the learners, whose gradient is reversed, to hide it:

        - sum_{i<j} mean over images and k of (r_ik y_ijk)^2 + lambda P
        y_ij = B_ij max(0, A_ij r_j + a_ij) + b_ij

    P keeps what could grow without bounds in place. It is the sum over all matrices
    W_m, A_ij and B_ij of the mean over their inputs of (||w||^2 - 1)^2, with w the
    weights of one input, and over all a_ij and b_ij of max(0, ||a||^2 - 1).

    Args:
        learners: Lengths of the learners' parts, each at least 1. The paper's are
            (96, 160, 256): larger where a_m is.
        diversity: d, at least 0.
        adversary: Width of the hidden layers, at least 0. 512 in the authors' code.
            0: the activation loss, without adversaries.
        weight_penalty: lambda, at least 0. The authors' code takes 100, and 100,000
            with adversaries.
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
        Opitz, Waltner, Possegger and Bischof, Deep Metric Learning with BIER: Boosting
        Independent Embeddings Robustly, TPAMI 2020 (the adversarial loss, as in their
        code).
    """

    def __init__(
        self,
        learners: Sequence[int],
        *,
        diversity: float = 0.0,
        adversary: int = 0,
        weight_penalty: float = 100.0,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.learners = learners_of(learners)
        self.diversity = at_least_zero("diversity", diversity)
        self.adversary = whole("adversary", adversary, 0)
        self.weight_penalty = at_least_zero("weight_penalty", weight_penalty)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the weights of all learners."""
        width = sum(self.learners)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], width),
            initializer="glorot_uniform",
        )
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")
        pairs = itertools.combinations(self.learners if self.adversary else (), 2)
        self.adversaries = [self._add_adversary(*pair) for pair in pairs]

    def _add_adversary(self, target: int, source: int) -> list[Any]:
        """Create A, a, B and b of the adversary of two learners."""
        shapes = [(source, self.adversary), (self.adversary, target)]
        return [
            self.add_weight(shape=shape, initializer=initializer)
            for weights in shapes
            for shape, initializer in (
                (weights, "glorot_uniform"),
                (weights[1:], "zeros"),
            )
        ]

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return the embeddings, and add the activation loss while training."""
        x = ops.cast(inputs, self.compute_dtype)
        if training and self.diversity:
            by = self._adversarial_loss if self.adversary else self._activation_loss
            self.add_loss(self.diversity * by(x))
        parts = parts_of(ops.matmul(x, self.kernel) + self.bias, self.learners)
        weights = learner_weights(len(parts))
        return ops.concatenate(
            [w**0.5 * unit_rows(p) for w, p in zip(weights, parts, strict=True)],
            axis=1,
        )

    def _active(self, x: Tensor) -> list[Tensor]:
        """Return r of each learner."""
        return parts_of(ops.matmul(ops.stop_gradient(x), self.kernel), self.learners)

    def _activation_loss(self, x: Tensor) -> Tensor:
        active = self._active(x)
        # The mean over k and l of a product is the product of the means.
        means = [ops.mean(ops.square(part), axis=1) for part in active]
        total = 0.0
        for j, later in enumerate(means):
            for earlier in means[:j]:
                total += ops.mean(earlier * later)
        kernels = parts_of(self.kernel, self.learners)
        penalty = sum(_beside_unit_length(kernel, axis=0) for kernel in kernels)
        return total + self.weight_penalty * penalty

    def _adversarial_loss(self, x: Tensor) -> Tensor:
        # The learners get the gradient of the adversaries with its sign changed.
        active = [2 * ops.stop_gradient(part) - part for part in self._active(x)]
        total, penalty = 0.0, 0.0
        pairs = itertools.combinations(active, 2)
        for (target, source), adversary in zip(pairs, self.adversaries, strict=True):
            first, first_bias, second, second_bias = adversary
            hidden = ops.relu(ops.matmul(source, first) + first_bias)
            found = ops.matmul(hidden, second) + second_bias
            total -= ops.mean(ops.square(target * found))
            for weights, bias in ((first, first_bias), (second, second_bias)):
                penalty += _beside_unit_length(weights, axis=1)
                penalty += ops.relu(ops.sum(ops.square(bias)) - 1)
        for kernel in parts_of(self.kernel, self.learners):
            penalty += _beside_unit_length(kernel, axis=1)
        return total + self.weight_penalty * penalty

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return `[batch, sum of learners]`."""
        return (input_shape[0], sum(self.learners))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "learners": list(self.learners),
            "diversity": self.diversity,
            "adversary": self.adversary,
            "weight_penalty": self.weight_penalty,
        }


def _beside_unit_length(weights: Tensor, axis: int) -> Tensor:
    """Return the mean of (||w||^2 - 1)^2 of the vectors along an axis."""
    return ops.mean(ops.square(ops.sum(ops.square(weights), axis=axis) - 1))
