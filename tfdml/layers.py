"""Layers of an embedder: colour preprocessing, unit length."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml.pairs import Tensor, unit_rows

__all__ = ["ColorTransform", "L2Normalization"]


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
