"""Layers of an embedder: colour preprocessing, pooling, unit length."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml._arguments import above_zero, one_of
from tfdml.ops import Tensor, unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class L2Normalization(keras.layers.Layer):
    """Scale each embedding to unit length, in float32: x / ||x||.

    `keras.layers.UnitNormalization` computes in the dtype of the policy: in float16 a
    zero row becomes NaN and a row of norm 100 becomes zeros. This layer casts first,
    so it also ends a `mixed_float16` or `mixed_bfloat16` model safely. A zero row stays
    zero and gets a zero gradient.

    Args:
        dtype: Type of the computation and of the output. Defaults to float32,
            whatever the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[..., dimension]`. Output shape: the same.

    Example:
        >>> rows = L2Normalization()(np.array([[3.0, 4.0]]))
        >>> [round(float(value), 3) for value in rows[0]]
        [0.6, 0.8]
    """

    def __init__(self, *, dtype: Any = "float32", **kwargs: Any) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return the rows at unit length."""
        return unit_rows(ops.cast(inputs, self.compute_dtype))

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the input shape."""
        return tuple(input_shape)


@keras.saving.register_keras_serializable(package="tfdml")
class ColorTransform(keras.layers.Layer):
    """Map the colour of every pixel by a matrix and an offset: y = x M + b.

    This is what each `preprocess_input` of `keras.applications` does, as a layer that
    is saved with the model.

    Args:
        matrix: M, `[3, 3]`: row i says what a unit of input channel i adds to the
            output channels.
        offset: b, `[3]`.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[batch, height, width, 3]`, RGB of 0 to 255. Output shape: the same.
    """

    def __init__(
        self,
        matrix: Sequence[Sequence[float]],
        offset: Sequence[float],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.matrix = np.asarray(matrix, dtype="float64")
        self.offset = np.asarray(offset, dtype="float64")
        if self.matrix.shape != (3, 3) or self.offset.shape != (3,):
            raise ValueError(
                "`matrix` must be [3, 3] and `offset` [3]. "
                f"Received: {self.matrix.shape} and {self.offset.shape}."
            )
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return the transformed colours."""
        pixels = ops.cast(inputs, self.compute_dtype)
        matrix = ops.convert_to_tensor(self.matrix, dtype=self.compute_dtype)
        offset = ops.convert_to_tensor(self.offset, dtype=self.compute_dtype)
        return ops.matmul(pixels, matrix) + offset

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the input shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "matrix": self.matrix.tolist(),
            "offset": self.offset.tolist(),
        }


@keras.saving.register_keras_serializable(package="tfdml")
class GeMPooling(keras.layers.Layer):
    """Generalised mean over all places of a feature map, channel by channel.

        f_c = (1/N sum over the N places of x_c^p)^(1/p)

    p = 1 is the average, p to infinity the maximum; p is trained unless `trainable`
    is False. x^p is defined for x above 0 alone: smaller values count as 1e-6, as in
    the paper's code, or the map is shifted so that its least value in each channel is
    1, and the result shifted back, as TensorFlow Similarity does.

    Computed in float32 whatever the global policy is: the cubes of a `mixed_float16`
    model would overflow at 40. Values are divided by the largest of their channel
    first, so that neither large nor small maps over- or underflow.

    Args:
        p: Exponent to begin with, from 0.01 to 10000. Training keeps it at 0.01 or
            more, where 1/p is still finite.
        negative: `"clip"` or `"shift"`: what is done about values that are not
            above 0.
        dtype: Type of the computation and of the output.
        **kwargs: As in `keras.layers.Layer`, such as `trainable=False`.

    Input shape: `[batch, ..., channels]`, at least one axis of places between.
    Output shape: `[batch, channels]`.

    Raises:
        ValueError: `p` or `negative` is out of range, or the input has no places.

    Example:
        >>> layer = GeMPooling(p=2.0)
        >>> round(float(layer(np.array([[[3.0], [4.0]]]))[0, 0]), 4)  # sqrt(25 / 2)
        3.5355

    Reference:
        Radenovic, Tolias and Chum, Fine-Tuning CNN Image Retrieval with No Human
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
            raise ValueError(f"`p` must be from 0.01 to 10000. Received: p={p!r}.")
        self.negative: str = one_of("negative", negative, ("clip", "shift"))

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the exponent."""
        if len(input_shape) < 3:
            raise ValueError(
                "GeMPooling needs a map of the shape [batch, ..., channels] with at "
                f"least 3 axes. Received: shape={tuple(input_shape)}."
            )
        self.p = self.add_weight(
            name="p",
            shape=(),
            initializer=keras.initializers.Constant(self.initial_p),
            constraint=_at_least_one_hundredth,
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Return the generalised mean of each channel."""
        x = ops.cast(inputs, self.compute_dtype)
        places = tuple(range(1, len(x.shape) - 1))
        offset = 0
        if self.negative == "shift":
            offset = ops.min(x, axis=places, keepdims=True) - 1
        # Not `maximum` with the offset inside: NaN must pass.
        x = ops.where(x - offset < 1e-6, 1e-6, x - offset)
        # The mean scales with its input, so that the gradient need not pass the scale.
        scale = ops.stop_gradient(ops.max(x, axis=places, keepdims=True))
        p = ops.cast(self.p, x.dtype)
        mean = ops.mean(ops.power(x / scale, p), axis=places, keepdims=True)
        pooled = scale * ops.power(mean, 1 / p) + offset
        return ops.squeeze(pooled, axis=places)

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
    return ops.maximum(p, 0.01)
