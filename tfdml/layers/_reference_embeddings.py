"""Append the embeddings of another model to those that are trained."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.marks import REFERENCE, mark
from tfdml._core.tensors import Tensor
from tfdml.messages import shown


@keras.saving.register_keras_serializable(package="tfdml")
class ReferenceEmbeddings(keras.layers.Layer):
    """Append the embeddings of the same images by another model, which stays as it is.

    The other model is an old one, whose gallery the new model is to search
    (`tfdml.losses.CompatibleLoss`), or a teacher. Its embeddings are computed once, as
    that model sees the images, and are a second input of the model that trains. They
    get no gradient. The layer is the last one of the trained model, not of the
    embedder: keep the embedder, which is what is exported.

    Args:
        dtype: Type of the output. Defaults to float32, whatever the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input: a list of embeddings `[batch, dimension]` and reference embeddings
    `[batch, reference dimension]`. Output: `[batch, dimension + reference dimension]`,
    the trained ones first.

    Raises:
        ValueError: The inputs are others.

    Example:
        >>> layer = ReferenceEmbeddings()
        >>> rows = layer([np.array([[1.0, 2.0]]), np.array([[3.0]])])
        >>> [float(value) for value in rows[0]]
        [1.0, 2.0, 3.0]
    """

    is_for_a_loss = True  # A model that ends in it ends in no embedding.

    def __init__(self, *, dtype: Any = "float32", **kwargs: Any) -> None:
        super().__init__(dtype=dtype, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Check that there are two matrices."""
        shapes = input_shape if isinstance(input_shape, list | tuple) else ()
        if len(shapes) != 2 or any(
            not isinstance(one, list | tuple) or len(one) != 2 for one in shapes
        ):
            raise ValueError(
                "The inputs of ReferenceEmbeddings must be a list of embeddings "
                "[batch, dimension] and the reference embeddings of the same images, "
                "[batch, reference dimension]. "
                f"Received: shapes {shown(input_shape)}."
            )

    def call(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the embeddings with the reference embeddings behind them."""
        embeddings, reference = (ops.cast(x, self.compute_dtype) for x in inputs)
        rows = [embeddings, ops.stop_gradient(reference)]
        return mark(ops.concatenate(rows, axis=1), REFERENCE)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the output."""
        (batch, dimension), (_, other) = input_shape
        return (batch, dimension + other)
