"""Learn the scale and the bias of a sigmoid of similarities."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import finite, within
from tfdml._core.marks import SCALED, mark
from tfdml._core.tensors import Tensor


@keras.saving.register_keras_serializable(package="tfdml")
class ScaleAndBias(keras.layers.Layer):
    """Append a learned scale and bias to each embedding, for a pairwise sigmoid.

    `LearnedPairwiseSigmoidLoss` takes the output. `fit` does not train the variables of
    a loss, so these two are weights of this layer, the last one of the trained model,
    not of the embedder: keep its input as the output of the embedder.

    The scale is trained as its logarithm, so it stays above 0.

    Args:
        scale: Initial scale t, from 1e-4 to 1e4. The paper begins with 10.
        bias: Initial bias b, finite. The paper begins with -10, so that the many
            negative pairs of a batch cost little at first.
        dtype: Type of the computation and of the output. Defaults to float32, whatever
            the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[batch, dimension]`. Output shape: `[batch, dimension + 2]`: the
    embedding, log t and b.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> rows = ScaleAndBias(scale=1.0, bias=-2.0)(np.array([[3.0, 4.0]]))
        >>> [float(value) for value in rows[0]]
        [3.0, 4.0, 0.0, -2.0]

    Reference:
        Zhai, Mustafa, Kolesnikov and Beyer, Sigmoid Loss for Language Image
        Pre-Training, ICCV 2023.
    """

    is_for_a_loss = True  # A model that ends in it ends in no embedding.

    def __init__(
        self,
        scale: float = 10.0,
        bias: float = -10.0,
        *,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self._initial_scale: float = within("scale", scale, 1e-4, 1e4)
        self._initial_bias: float = finite("bias", bias)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create both weights."""
        first = math.log(self._initial_scale), self._initial_bias
        self._log_scale, self._bias = (
            self.add_weight(
                name=name, shape=(), initializer=keras.initializers.Constant(value)
            )
            for name, value in zip(("log_scale", "bias"), first, strict=True)
        )

    @property
    def scale(self) -> Tensor:
        """Return t, a scalar."""
        return ops.exp(self._log_scale)

    @property
    def bias(self) -> Tensor:
        """Return b, a scalar."""
        return ops.convert_to_tensor(self._bias)

    def call(self, inputs: Tensor) -> Tensor:
        """Return the embeddings with log t and b appended."""
        inputs = ops.cast(inputs, self.compute_dtype)
        both = [ops.cast(x, self.compute_dtype) for x in (self._log_scale, self._bias)]
        columns = ops.broadcast_to(ops.stack(both), (ops.shape(inputs)[0], 2))
        return mark(ops.concatenate([inputs, columns], axis=1), SCALED)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the shape of the output."""
        return (input_shape[0], input_shape[1] + 2)  # type: ignore[operator]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "scale": self._initial_scale,
            "bias": self._initial_bias,
        }
