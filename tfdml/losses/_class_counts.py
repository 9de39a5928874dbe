"""Look up what a loss knows of each class, by the labels of a batch."""

from collections.abc import Mapping, Sequence

import keras
import numpy as np
from keras import ops

from tfdml._core.arrays import as_array
from tfdml._core.batches import is_traced
from tfdml._core.row_order import ranks
from tfdml._core.tensors import Tensor
from tfdml.messages import shown


class ClassCounts:
    """The number of training images of each class.

    Args:
        class_counts: Mapping from label to number, or a sequence with the number of
            label 0, 1, 2, ...

    Attributes:
        labels: Ascending labels, int64 `[C]`.
        numbers: Their numbers of images, int64 `[C]`.

    Raises:
        ValueError: `class_counts` has another form, or no images.
    """

    def __init__(
        self, class_counts: Mapping[int, int] | Sequence[int] | np.ndarray
    ) -> None:
        if hasattr(
            class_counts, "to_dict"
        ):  # pandas' `value_counts()`: the index names
            class_counts = class_counts.to_dict()
        self._is_mapping = isinstance(class_counts, Mapping)
        if isinstance(class_counts, Mapping):
            labels = as_array("class_counts", list(class_counts))
            numbers = as_array("class_counts", list(class_counts.values()))
        else:
            numbers = as_array("class_counts", class_counts)
            labels = np.arange(len(numbers)) if numbers.ndim else np.zeros(0, "int64")
        for name, values in (("labels", labels), ("numbers", numbers)):
            if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
                raise ValueError(
                    "`class_counts` must be a mapping from label to number of images "
                    "or a sequence of numbers, all integers. "
                    f"Received: {name} of shape {values.shape} and type {values.dtype}."
                )
        if not len(numbers) or numbers.min() < 0 or not numbers.max():
            raise ValueError(
                "`class_counts` must be at least 0, with images in some class. "
                f"Received: {shown(numbers.tolist())}."
            )
        order = np.argsort(labels)
        self.labels = labels[order].astype("int64")
        self.numbers = numbers[order].astype("int64")

    def to_config(self) -> dict[int, int] | list[int]:
        """Return the counts in the form in which they were given."""
        numbers = self.numbers.tolist()
        if not self._is_mapping:
            return numbers
        return dict(zip(self.labels.tolist(), numbers, strict=True))

    def look_up(self, labels: Tensor, table: np.ndarray, dtype: str) -> Tensor:
        """Return the row of each label, `[B, N]`, from a table `[C, N]`.

        Raises:
            ValueError: A label is unknown. Inside a compiled function, where values are
                unknown, its row is NaN instead.
        """
        position, is_known = self._positions(labels)
        if not is_traced(is_known):
            missing = ops.convert_to_numpy(labels)[~ops.convert_to_numpy(is_known)]
            if len(missing):
                raise ValueError(
                    "`class_counts` must contain every label. "
                    f"Received: {missing[0]} in a batch, with counts of "
                    f"{len(self.labels)} classes."
                )
        rows = ops.take(ops.convert_to_tensor(table, dtype=dtype), position, axis=0)
        return ops.where(ops.expand_dims(is_known, 1), rows, float("nan"))

    def _positions(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Find labels `[B]` among the known ones, and whether each is there, `[B]`."""
        known = ops.convert_to_tensor(self.labels)
        kept = self.labels.astype(keras.backend.standardize_dtype(known.dtype))
        if not np.array_equal(kept, self.labels):
            raise ValueError(
                "Labels above 2^31 need 64-bit integers (in JAX: `jax_enable_x64`). "
                f"Received: labels up to {self.labels[-1]} in `class_counts`."
            )
        labels = ops.cast(labels, known.dtype)
        row, values = ops.expand_dims(known, 0), ops.expand_dims(labels, 0)
        position = ops.squeeze(ranks(row, values), axis=0)
        position = ops.minimum(position, len(self.labels) - 1)
        return position, ops.equal(ops.take(known, position), labels)
