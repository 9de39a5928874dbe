"""Append the high-order moments of a feature map to an embedding."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import whole
from tfdml._core.marks import MOMENTS, mark
from tfdml._core.tensors import Tensor
from tfdml.messages import shown
from tfdml.ops import unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class HighOrderMoments(keras.layers.Layer):
    """Append embeddings of the moments of order 2 to K of a feature map (HORDE).

    The average of a feature map is its first moment. With x_p the features at position
    p, and * the product of components,

        phi_2(x) = (V_1 x) * (V_2 x),   phi_k(x) = phi_{k-1}(x) * (V_k x)
        g_k = P_k (mean over positions of phi_k(x_p)),   scaled to unit length

    phi_k holds products of k features, so its mean describes how features are
    distributed over the image, and not only what is on average there. V and P are
    trained, as in the paper's best results. `HORDELoss` applies a loss to the embedding
    and to each g_k. For search only the embedding is used: this layer ends the model
    that is trained, and the embedder inside it is what is kept.

    Args:
        order: K, at least 2. 5 in the paper.
        width: Components of phi, at least 1. 8,192 in the paper; memory and time grow
            with it.
        dtype: Type of the computation and of the output. Defaults to float32, whatever
            the global policy is: products of features overflow half precision.
        **kwargs: As in `keras.layers.Layer`.

    Input: a list of the embedding `[batch, dimension]` and the feature map
    `[batch, ..., channels]`, with at least one axis of positions. Output:
    `[batch, K dimension]`, the embedding first, then g_2 to g_K.

    Raises:
        ValueError: An argument is out of range, or the inputs are others.

    Example:
        >>> layer = HighOrderMoments(order=3, width=16)
        >>> tuple(layer([np.ones((2, 4)), np.ones((2, 5, 5, 8))]).shape)
        (2, 12)

    Reference:
        Jacob, Picard, Histace and Klein, Metric Learning With HORDE: High-Order
        Regularizer for Deep Embeddings, ICCV 2019.
    """

    is_for_a_loss = True

    def __init__(
        self,
        order: int = 5,
        *,
        width: int = 8192,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.order: int = whole("order", order, 2)
        self.width: int = whole("width", width)

    def build(self, input_shape: Any) -> None:
        """Create V and P."""
        is_pair = len(input_shape) == 2 and not isinstance(input_shape[0], int | None)
        if not is_pair or len(input_shape[0]) != 2 or len(input_shape[1]) < 3:
            raise ValueError(
                "The inputs of HighOrderMoments must be a list of an embedding [batch, "
                "dimension] and a feature map [batch, ..., channels]. "
                f"Received: shapes {shown(input_shape)}."
            )
        dimension, channels = input_shape[0][-1], input_shape[1][-1]
        self.factors = [
            self.add_weight(name=f"factor_{k}", shape=(channels, self.width))
            for k in range(1, self.order + 1)
        ]
        self.projections = [
            self.add_weight(name=f"projection_{k}", shape=(self.width, dimension))
            for k in range(2, self.order + 1)
        ]

    def call(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the embedding with those of the moments behind it."""
        embedding, maps = (ops.cast(x, self.compute_dtype) for x in inputs)
        rows = [embedding]
        first, *others = self.factors
        products = ops.matmul(maps, first)
        positions = tuple(range(1, len(maps.shape) - 1))
        for factor, projection in zip(others, self.projections, strict=True):
            products = products * ops.matmul(maps, factor)
            moment = ops.mean(products, axis=positions)
            rows.append(unit_rows(ops.matmul(moment, projection)))
        return mark(ops.concatenate(rows, axis=1), MOMENTS)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return `[batch, K dimension]`."""
        batch, dimension = input_shape[0]
        return (batch, self.order * dimension)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "order": self.order, "width": self.width}
