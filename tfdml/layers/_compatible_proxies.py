"""Compare embeddings with learned proxies and with the proxies of an old model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml._core.marks import BOTH_PROXIES, mark
from tfdml._core.tensors import Tensor
from tfdml.layers._proxies import Proxies
from tfdml.ops import unit_rows


@keras.saving.register_keras_serializable(package="tfdml")
class CompatibleProxies(Proxies):
    """Cosine similarity with a learned and with an old proxy of each class.

    The old proxies stand for the classifier of an old model: the mean of the old
    model's embeddings of each class, which `set_old_proxies` takes. They stay as they
    are. `tfdml.losses.CompatibleLoss` around a proxy loss applies it to both halves of
    the output, so that the new embeddings fit the old classes too.

    Args:
        num_classes: C, as in `Proxies`, and so are the others, but there are no
            `dimensions`. With several centers per class the old proxy of a class stands
            in the place of each.
        **kwargs: As in `Proxies`.

    Input shape: `[batch, dimension]`. Output shape: `[batch, 2 C]`, or `[batch, 2 C,
    centers_per_class]`: the similarities with the learned proxies first.

    Until the old proxies are set, the second half is NaN, and so is the loss.

    Raises:
        ValueError: As `Proxies`.

    Example:
        >>> from tfdml.batch_designs import class_means
        >>> old = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> layer = CompatibleProxies(num_classes=2)
        >>> layer.set_old_proxies(class_means(old, [0, 0, 1]))
        >>> tuple(layer(np.array([[2.0, 0.0]])).shape)
        (1, 4)

    Reference:
        Shen, Xiong, Xia and Soatto, Towards Backward-Compatible Representation
        Learning, CVPR 2020 (means of old embeddings in place of an old classifier).
    """

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the proxies, and the place of the old ones."""
        if self.dimensions:
            raise ValueError(
                "`dimensions` must be None: an old gallery has one dimension. "
                f"Received: dimensions={self.dimensions}."
            )
        super().build(input_shape)
        self._old_proxies = self.add_weight(
            name="old_proxies",
            shape=(self.num_classes, input_shape[-1]),
            # A loss of NaN tells who forgets to set them.
            initializer=keras.initializers.Constant(float("nan")),
            trainable=False,
        )

    @property
    def old_proxies(self) -> Tensor:
        """Return the old proxies, `[C, dimension]`; NaN until they are set."""
        self._check_built()
        return self._old_proxies

    def set_old_proxies(self, proxies: Any) -> None:
        """Set the old proxies, such as `tfdml.batch_designs.class_means` gives.

        Args:
            proxies: Float array `[C, dimension]`: the mean of the old model's
                embeddings of each class, in the order of the labels.

        Raises:
            ValueError: The shape is another, a number is not finite, or a row is zero,
                as that of a class of which the old model has embedded no image.
        """
        values = np.asarray(proxies)
        dimension: Any = values.shape[-1] if values.ndim == 2 else "dimension"
        if self.built:
            dimension = self._old_proxies.shape[-1]
        if values.shape != (self.num_classes, dimension):
            raise ValueError(
                f"`proxies` must be of the shape ({self.num_classes}, {dimension}): a "
                "row per class, of the dimension that the new embeddings have too. "
                f"Received: shape={values.shape}."
            )
        unusable = ~(np.isfinite(values).all(axis=1) & values.any(axis=1))
        if unusable.any():
            row = int(np.argmax(unusable))
            raise ValueError(
                "`proxies` must be finite, and no row may be zero. "
                f"Received: row {row} is {'zero' if not values[row].any() else 'not'}."
            )
        if not self.built:
            self.build((None, values.shape[-1]))
        self._old_proxies.assign(values)

    def call(self, inputs: Tensor) -> Tensor:
        """Return the similarities with the learned proxies, then the old ones."""
        new = super().call(inputs)
        rows = unit_rows(ops.cast(inputs, self.compute_dtype))
        proxies = unit_rows(ops.cast(self._old_proxies, self.compute_dtype))
        old = ops.matmul(rows, ops.transpose(proxies))
        if self.centers_per_class > 1:
            old = ops.repeat(ops.expand_dims(old, 2), self.centers_per_class, axis=2)
        return mark(ops.concatenate([new, old], axis=1), BOTH_PROXIES)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Any:
        """Return the shape of the similarities."""
        batch, columns, *several = super().compute_output_shape(input_shape)
        return (batch, 2 * columns, *several)
