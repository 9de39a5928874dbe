"""Pool a feature map by its generalized mean."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import above_zero, one_of
from tfdml._core.tensors import Tensor
from tfdml.messages import shown


@keras.saving.register_keras_serializable(package="tfdml")
class GeMPooling(keras.layers.Layer):
    """Generalized mean over all positions of a feature map, channel by channel.

        f_c = (1/N sum over the N positions of x_c^p)^(1/p)

    p = 1 is the average, p to infinity the maximum; p is trained unless `trainable`
    is False. x^p is defined only for x above 0: smaller values count as 1e-6, as in the
    paper's code, or the map is shifted so that its least value in each channel is 1,
    and the result shifted back, as in TensorFlow Similarity.

    Computed in float32 whatever the global policy is: the cubes of a `mixed_float16`
    model would overflow at 40. Values are divided by the largest of their channel
    first, so that neither large nor small maps over- or underflow.

    Args:
        p: Initial exponent, from 0.01 to 10000. Training keeps it at 0.01 or more,
            where 1/p is still finite.
        negative: `"clip"` or `"shift"`: the treatment of values that are not above 0.
        dtype: Type of the computation and of the output.
        **kwargs: As in `keras.layers.Layer`, such as `trainable=False`.

    Input shape: `[batch, ..., channels]`, with at least one axis of positions.
    Output shape: `[batch, channels]`.

    Raises:
        ValueError: `p` or `negative` is out of range, or the input has no positions.

    Example:
        >>> layer = GeMPooling(p=2.0)
        >>> round(float(layer(np.array([[[3.0], [4.0]]]))[0, 0]), 4)  # sqrt(25 / 2)
        3.5355

    Reference:
        Radenović, Tolias and Chum, Fine-Tuning CNN Image Retrieval with No Human
        Annotation, TPAMI 2019, Eq. 3.
    """

    def __init__(
        self,
        p: float = 3.0,
        negative: str = "clip",
        *,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.initial_p: float = above_zero("p", p)
        if not 0.01 <= self.initial_p <= 1e4:
            raise ValueError(f"`p` must be from 0.01 to 10000. Received: p={shown(p)}.")
        self.negative: str = one_of("negative", negative, ("clip", "shift"))

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the exponent."""
        if len(input_shape) < 3:
            raise ValueError(
                "The input of GeMPooling must be of shape [batch, ..., channels] with "
                f"at least 3 axes. Received: shape={tuple(input_shape)}."
            )
        self.p = self.add_weight(
            name="p",
            shape=(),
            initializer=keras.initializers.Constant(self.initial_p),
            constraint=_at_least_one_hundredth,
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Return the generalized mean of each channel."""
        x = ops.cast(inputs, self.compute_dtype)
        positions = tuple(range(1, len(x.shape) - 1))
        offset = 0
        if self.negative == "shift":
            offset = ops.min(x, axis=positions, keepdims=True) - 1
        # Not `maximum` with the offset inside: NaN must pass.
        x = ops.where(x - offset < 1e-6, 1e-6, x - offset)
        # The mean is homogeneous, so that the gradient need not pass the scale.
        scale = ops.stop_gradient(ops.max(x, axis=positions, keepdims=True))
        p = ops.cast(self.p, x.dtype)
        mean = ops.mean(ops.power(x / scale, p), axis=positions, keepdims=True)
        pooled = scale * ops.power(mean, 1 / p) + offset
        return ops.squeeze(pooled, axis=positions)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return `[batch, channels]`."""
        return (input_shape[0], input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "p": self.initial_p,
            "negative": self.negative,
        }


def _at_least_one_hundredth(p: Tensor) -> Tensor:
    """Constrain the exponent."""
    return ops.maximum(p, 0.01)
