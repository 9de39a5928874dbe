"""Read the items that `RetrievalEvaluation` embeds: whatever `predict` takes."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array, as_arrays, leaves
from tfdml._core.embedding_part import check_outputs, embedding_part
from tfdml._core.labels import as_labels

_REMEDY = "Give the model that ends in the embeddings as `embedder`."


class HeldOutItems:
    """Items and their labels, in arrays or in a data set of batches.

    Args:
        images: Array-likes of equal length, in a dict, tuple or list where a model has
            several inputs; or a `tf.data.Dataset`, a `keras.utils.PyDataset` or a
            `DataLoader` of batches.
        labels: Labels `[N]`; `None` for a data set of (x, y).

    Attributes:
        labels: The labels, `[N]`; `None` until a data set that holds them is read.

    Raises:
        ValueError: They do not fit, or can be read once only.
    """

    def __init__(self, images: Any, labels: ArrayLike | None) -> None:
        self.labels = None if labels is None else as_labels("labels", labels)
        self._holds_labels = labels is None
        self._is_stream = _is_stream(images)
        if self._is_stream:
            self._images = images
            return
        if self.labels is None:
            raise ValueError(
                "`labels` must be given with arrays; a data set of (x, y) holds them "
                "itself. Received: labels=None."
            )
        self._images = as_arrays("images", images)
        for array in list(leaves(self._images)) or [np.zeros(0)]:
            if array.shape[:1] != self.labels.shape:
                rows = len(array) if array.ndim else 1
                raise ValueError(
                    f"`labels` must have one entry for each of the {rows} images. "
                    f"Received: {len(self.labels)}."
                )

    def embedder_of(self, model: keras.Model) -> keras.Model:
        """Return the part of a model that embeds, checked on one batch.

        Raises:
            ValueError: The model has no such part, or the first batch does not fit.
        """
        embedder = embedding_part(model, _REMEDY)
        if self._is_stream:
            check_outputs(embedder, next(self._batches())[0], _REMEDY)
        else:
            check_outputs(embedder, self._images, _REMEDY)
        return embedder

    def embed(
        self, embedder: keras.Model, batch_size: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return embeddings `[N, dimension]` and labels `[N]`, of one reading.

        Raises:
            ValueError: The data set holds another number of items than `labels`.
        """
        if not self._is_stream:
            assert self.labels is not None  # noqa: S101
            found = embedder.predict(self._images, batch_size=batch_size, verbose=0)
            return _one_output(found), self.labels
        rows, names = [], []
        for x, y in self._batches():
            rows.append(_one_output(_predicted(embedder, x)))
            names.append(y)
        embeddings = np.concatenate(rows)
        if self._holds_labels:
            self.labels = as_labels("labels", np.concatenate(names), len(embeddings))
        elif len(embeddings) != len(self.labels):  # type: ignore[arg-type]
            raise ValueError(
                f"`labels` must have one entry for each of the {len(embeddings)} "
                f"images. Received: {len(self.labels)}."  # type: ignore[arg-type]
            )
        return embeddings, self.labels  # type: ignore[return-value]

    def _batches(self) -> Iterator[tuple[Any, Any]]:
        """Yield the inputs of each batch, and its labels if it holds them."""
        stream = self._images
        if isinstance(stream, keras.utils.PyDataset):
            stream = (self._images[i] for i in range(len(self._images)))
        is_empty = True
        for batch in stream:
            x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
            if self._holds_labels and y is None:
                raise ValueError(
                    "`labels` must be given with a data set of images alone. "
                    "Received: labels=None."
                )
            if not self._holds_labels and y is not None:
                raise ValueError(
                    "`labels` must be left out with a data set of (x, y): they are "
                    "read with their images, in any order. Received: both."
                )
            is_empty = False
            yield x, None if y is None else as_array("labels", y)
        if is_empty:
            raise ValueError("`images` must hold a batch. Received: none.")


def _is_stream(images: Any) -> bool:
    if isinstance(images, Iterator):
        raise ValueError(
            "`images` must be read again at each epoch: give arrays or a data set. "
            f"Received: a {type(images).__name__}, which is read once."
        )
    if hasattr(images, "element_spec"):  # a tf.data.Dataset
        if images.cardinality() == -1:
            raise ValueError(
                "`images` must end: limit it by `take`. Received: an infinite data set."
            )
        return True
    if isinstance(images, keras.utils.PyDataset):
        return True
    return any(base.__name__ == "DataLoader" for base in type(images).__mro__)


def _predicted(embedder: keras.Model, x: Any) -> Any:
    strategy = getattr(embedder, "distribute_strategy", None)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        return embedder.predict(x, verbose=0)  # shares the batch out
    return embedder.predict_on_batch(x)


def _one_output(found: Any) -> NDArray[Any]:
    if isinstance(found, dict | list | tuple):
        raise ValueError(
            "The model must have one output, the embeddings. Received: "
            f"{len(found)} outputs. {_REMEDY}"
        )
    return as_array("embeddings", found)
