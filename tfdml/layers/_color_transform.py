"""Preprocess the colors of images."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml._core.tensors import Tensor


@keras.saving.register_keras_serializable(package="tfdml")
class ColorTransform(keras.layers.Layer):
    """Map the color of every pixel by a matrix and an offset: y = x M + b.

    Every `preprocess_input` of `keras.applications` is such a map; as a layer it is
    saved with the model.

    Args:
        matrix: M, `[3, 3]`: row i is the contribution of input channel i to the output
            channels.
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
        """Return the transformed colors."""
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
