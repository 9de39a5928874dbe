"""Show each learner of an ensemble a feature map through a mask of its own."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import whole
from tfdml._core.tensors import Tensor
from tfdml.ops import unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class AttentionMasks(keras.layers.Layer):
    """Multiply a feature map by M masks, which are computed from another map (ABE).

        S_m = S * sigmoid(V_m a + b_m)        at each position

    S is the feature map, a the last map of an attention network and * the product of
    components: a mask has a value for each position and channel. The M masked maps of
    an image follow each other in the batch, so that one network embeds them all;
    `JoinedHeads` puts their embeddings together again.

    Args:
        heads: M, at least 1.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: two maps, `[batch, height, width, channels]` and `[batch, height,
    width, features]`. Output shape: `[M batch, height, width, channels]`.

    Raises:
        ValueError: `heads` is out of range.

    Example:
        >>> maps, features = np.ones((2, 4, 4, 3)), np.ones((2, 4, 4, 5))
        >>> tuple(AttentionMasks(8)([maps, features]).shape)
        (16, 4, 4, 3)

    Reference:
        Kim, Goyal, Chawla, Lee and Kwon, Attention-based Ensemble for Deep Metric
        Learning, ECCV 2018.
    """

    def __init__(self, heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads: int = whole("heads", heads)

    def build(self, input_shape: Any) -> None:
        """Create the weights of the masks."""
        maps, features = input_shape
        width = self.heads * maps[-1]
        self.kernel = self.add_weight(
            name="kernel", shape=(features[-1], width), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")

    def call(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the masked maps."""
        maps, features = inputs
        height, width, channels = maps.shape[1:]
        masks = ops.sigmoid(ops.matmul(features, self.kernel) + self.bias)
        masks = ops.reshape(masks, (-1, height, width, self.heads, channels))
        masked = ops.expand_dims(maps, 3) * masks
        masked = ops.transpose(masked, (0, 3, 1, 2, 4))
        return ops.reshape(masked, (-1, height, width, channels))

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return `[M batch, height, width, channels]`."""
        batch, *others = input_shape[0]
        return (batch and batch * self.heads, *others)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "heads": self.heads}


@keras.saving.register_keras_serializable(package="tfdml")
class JoinedHeads(keras.layers.Layer):
    """Join the embeddings of the M learners of each image to one of unit length.

        f = (z_1 / ||z_1||, ..., z_M / ||z_M||) / sqrt(M)

    The cosine similarity of two embeddings is the mean of those of the learners.
    `ABELoss` trains it.

    Args:
        heads: M, at least 1, as in `AttentionMasks`.
        dtype: Type of the computation and of the output. Defaults to float32, whatever
            the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[M batch, dimension]`, the learners of an image one after the other.
    Output shape: `[batch, M dimension]`.

    Raises:
        ValueError: `heads` is out of range.

    Example:
        >>> rows = np.array([[3.0, 4.0], [0.0, 2.0]])
        >>> [round(float(value), 3) for value in JoinedHeads(2)(rows)[0]]
        [0.424, 0.566, 0.0, 0.707]
    """

    def __init__(self, heads: int, *, dtype: Any = "float32", **kwargs: Any) -> None:
        super().__init__(dtype=dtype, **kwargs)
        self.heads: int = whole("heads", heads)

    def call(self, inputs: Tensor) -> Tensor:
        """Return the embeddings."""
        rows = unit_rows(ops.cast(inputs, self.compute_dtype)) / self.heads**0.5
        return ops.reshape(rows, (-1, self.heads * rows.shape[1]))

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return `[batch, M dimension]`."""
        batch, dimension = input_shape
        return (batch and batch // self.heads, dimension and dimension * self.heads)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "heads": self.heads}
