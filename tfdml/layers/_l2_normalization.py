"""Scale embeddings to unit length."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.tensors import Tensor
from tfdml.ops import unit_rows


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
