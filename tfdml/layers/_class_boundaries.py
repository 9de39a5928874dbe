"""Learn the boundaries of the margin loss, one per class."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfdml._core.arguments import above_zero, whole
from tfdml._core.marks import BOUNDARIES, mark
from tfdml._core.tensors import Tensor


@keras.saving.register_keras_serializable(package="tfdml")
class ClassBoundaries(keras.layers.Layer):
    """Append the boundary of every class to each embedding, for `LearnedMarginLoss`.

    The layer is the last one of the trained model, not of the embedder: keep its input
    as the output of the embedder. Each row contains all boundaries, as a model does not
    receive the labels; the loss selects the boundary of the anchor's class.

    Args:
        num_classes: Number of classes, at least 1.
        initial: Initial value of every boundary; a Euclidean distance of unit rows, 0
            to 2.
        learning_rate_multiplier: How much faster boundaries learn than the rest of the
            model, above 0. A boundary is stored divided by it: under Adam that is
            exactly a learning rate multiplied by it, under plain SGD by its square.
        dtype: Type of the computation and of the output. Defaults to float32, whatever
            the global policy is.
        **kwargs: As in `keras.layers.Layer`.

    Input shape: `[batch, dimension]`. Output shape: `[batch, dimension + num_classes]`.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> rows = ClassBoundaries(2, initial=1.5)(np.array([[3.0, 4.0]]))
        >>> [float(value) for value in rows[0]]
        [3.0, 4.0, 1.5, 1.5]

    Reference:
        Wu, Manmatha, Smola and Krähenbühl, Sampling Matters in Deep Embedding
        Learning, ICCV 2017, Eq. 6, with the boundaries of classes; the paper's
        boundaries of single images are left out.
    """

    is_for_a_loss = True  # A model that ends in it ends in no embedding.

    def __init__(
        self,
        num_classes: int,
        initial: float = 1.2,
        learning_rate_multiplier: float = 1.0,
        *,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        if not 0 <= initial <= 2:
            raise ValueError(
                "`initial` must be from 0 to 2, a distance of unit rows. "
                f"Received: initial={initial}."
            )
        self.num_classes: int = whole("num_classes", num_classes)
        self.initial: float = float(initial)
        self.learning_rate_multiplier: float = above_zero(
            "learning_rate_multiplier", learning_rate_multiplier
        )

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the boundaries."""
        self.scaled_boundaries = self.add_weight(
            name="scaled_boundaries",
            shape=(self.num_classes,),
            initializer=keras.initializers.Constant(
                self.initial / self.learning_rate_multiplier
            ),
        )

    @property
    def boundaries(self) -> Tensor:
        """Return the boundary of each class, `[num_classes]`."""
        return self.learning_rate_multiplier * self.scaled_boundaries

    def call(self, inputs: Tensor) -> Tensor:
        """Return the embeddings with all boundaries appended."""
        inputs = ops.cast(inputs, self.compute_dtype)
        boundaries = ops.cast(self.boundaries, self.compute_dtype)
        shape = (ops.shape(inputs)[0], self.num_classes)
        columns = [inputs, ops.broadcast_to(boundaries, shape)]
        return mark(ops.concatenate(columns, axis=1), BOUNDARIES)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the shape of the output."""
        return (input_shape[0], input_shape[1] + self.num_classes)  # type: ignore[operator]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "initial": self.initial,
            "learning_rate_multiplier": self.learning_rate_multiplier,
        }
