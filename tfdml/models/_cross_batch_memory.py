"""Train an embedder with a memory of past embeddings."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml._core.arguments import whole
from tfdml._core.batches import checked_batch, gallery_masks
from tfdml._core.tensors import Tensor
from tfdml.losses import MetricLoss, PairLoss, check_pairwise
from tfdml.messages import shown


@keras.saving.register_keras_serializable(package="tfdml")
class CrossBatchMemory(keras.Model):
    """A model that trains an embedder against a memory of past embeddings.

    Embeddings drift slowly, so those of the last few hundred batches are still useful
    as positives and negatives, at the cost of one matrix product. In each training step
    the loss is

        L_i = pair_loss(S_i, P_i, N_i),  S_i = scores of anchor i with batch and memory

    where the gallery is the batch of B items, without the anchor itself, followed by
    the memory M. Then the batch is added to the memory and the oldest items are
    removed. Past embeddings have no gradient. The memory does not contain the current
    batch while it is compared, so no item is compared with its own copy. While the
    memory fills, its empty rows are in neither mask: the first step is the plain loss
    of the batch.

    Compile it with any `PairLoss`; `fit`, `save` and `load_model` work as for every
    model, and labels stay integers. Calling the model calls the embedder. `evaluate`
    compares each batch with itself and does not change the memory. The memory consists
    of non-trainable weights, which are saved with the model, so training resumes with
    the saved memory. To use or export only the embedder, take `model.embedder`.

    Departures from the paper: its Algorithm 1 adds the batch to the memory before it
    compares, so the items of the batch are constants in the gallery, too; here a
    pair within the batch moves both items, as in the plain loss, and an empty memory
    changes nothing. The paper stores nothing during the warm-up; here the memory fills
    in the meantime, so it is full of recent embeddings when it is first used.

    Args:
        embedder: Model with one output `[batch, dimension]`, whose shape is known.
        size: |M|, number of past embeddings, at least 1. A memory smaller than the
            batch keeps its first `size` items.
        warmup_steps: Number of training steps in which the memory is not used, at least
            0, because the embeddings change too fast at first; 1000 in the paper.
        **kwargs: As in `keras.Model`.

    Raises:
        TypeError: When it trains: the loss is not defined by pairs alone, see
            `tfdml.losses.check_pairwise`.
        ValueError: An argument is out of range, or more than one replica of
            `tf.distribute` shares the model.

    Example:
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> inputs = keras.Input((3,))
        >>> embedder = keras.Model(inputs, keras.layers.Dense(2)(inputs))
        >>> model = CrossBatchMemory(embedder, size=32)
        >>> model.compile("sgd", loss=TopKPrecisionLoss())
        >>> history = model.fit(np.eye(3), np.array([0, 0, 1]), epochs=2, verbose=0)
        >>> int(model.filled)
        6

    Reference:
        Wang, Zhang, Huang and Scott, Cross-Batch Memory for Embedding Learning, CVPR
        2020, Algorithm 1.
    """

    def __init__(
        self, embedder: keras.Model, size: int, warmup_steps: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if _replicas() > 1:
            raise ValueError(
                "A memory needs whole batches, of which a replica of tf.distribute has "
                "only a share. Use one replica, or tfdml.losses.AcrossReplicas without "
                f"a memory. Received: {_replicas()} replicas."
            )
        self.embedder = embedder
        self.size = whole("size", size)
        self.warmup_steps = whole("warmup_steps", warmup_steps, 0)
        # Labels keep the widest integer type of the backend: floats merge classes.
        integer = ops.convert_to_tensor(np.zeros((), dtype="int64")).dtype
        self.past_embeddings = self._state(
            "past_embeddings", (self.size, _dimension(embedder)), self.variable_dtype
        )
        self.past_labels = self._state("past_labels", (self.size,), integer)
        self.filled = self._state("filled", (), "int32")
        self.steps_seen = self._state("steps_seen", (), "int32")
        self.built = True

    def _state(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.add_weight(
            name=name, shape=shape, dtype=dtype, initializer="zeros", trainable=False
        )

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        """Return the embeddings."""
        return self.embedder(inputs, training=training)

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor = None,
        y_pred: Tensor = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Compute the loss of a batch; in training also fill the memory."""
        check_pairwise(self.loss)
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = _MemoryLoss(self.loss, self)(y, y_pred, sample_weight)
        for other in self.losses:  # of regularizers and `add_loss`
            total = total + ops.cast(ops.sum(other), total.dtype)
        self._remember(*checked_batch(y, y_pred, self.loss.dtype))
        return total

    def gallery(
        self, labels: Tensor, embeddings: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gallery of a batch in training: the batch and the memory.

        Args:
            labels: Labels of the batch, `[B]`.
            embeddings: Embeddings of the batch, `[B, dimension]`.

        Returns:
            Embeddings `[B + size, dimension]`, positives and negatives `[B, B + size]`.
            The newest items of the memory come first.
        """
        past = ops.cast(ops.convert_to_tensor(self.past_embeddings), embeddings.dtype)
        past_labels = ops.convert_to_tensor(self.past_labels)
        labels = ops.cast(labels, past_labels.dtype)
        count = ops.shape(labels)[0]
        masks = gallery_masks(
            labels,
            ops.concatenate([labels, past_labels]),
            position=ops.arange(count, dtype="int32"),
        )
        warm = self.steps_seen >= self.warmup_steps
        stored = ops.logical_and(
            ops.arange(self.size, dtype="int32") < self.filled, warm
        )
        usable = ops.concatenate([ops.ones_like(labels, dtype="bool"), stored])
        positives, negatives = (ops.logical_and(mask, usable) for mask in masks)
        everything = ops.concatenate([embeddings, ops.stop_gradient(past)])
        return everything, positives, negatives

    def clear_memory(self) -> None:
        """Remove all past embeddings; the count of warm-up steps continues."""
        self.filled.assign(ops.zeros((), dtype="int32"))

    def _remember(self, labels: Tensor, embeddings: Tensor) -> None:
        """Prepend a batch to the memory and drop the oldest items."""
        # A shift keeps the order by age and needs no cursor. It costs one copy of the
        # memory, as a scatter under XLA does.
        embeddings = ops.cast(ops.stop_gradient(embeddings), self.past_embeddings.dtype)
        labels = ops.cast(labels, self.past_labels.dtype)
        filled = self.filled + ops.cast(ops.shape(labels)[0], "int32")
        old = ops.convert_to_tensor(self.past_embeddings)
        old_labels = ops.convert_to_tensor(self.past_labels)
        self.past_embeddings.assign(ops.concatenate([embeddings, old])[: self.size])
        self.past_labels.assign(ops.concatenate([labels, old_labels])[: self.size])
        self.filled.assign(ops.minimum(filled, self.size))
        # Counted no further than needed, so that it never overflows.
        self.steps_seen.assign(ops.minimum(self.steps_seen + 1, self.warmup_steps))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "embedder": keras.saving.serialize_keras_object(self.embedder),
            "size": self.size,
            "warmup_steps": self.warmup_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build the model, with an empty memory, from the result of `get_config`."""
        embedder = keras.saving.deserialize_keras_object(
            config["embedder"], custom_objects=custom_objects
        )
        return cls(**{**config, "embedder": embedder})


class _MemoryLoss(MetricLoss):
    """The loss of a batch compared with itself and a memory."""

    def __init__(self, loss: PairLoss, memory: CrossBatchMemory) -> None:
        super().__init__(reduction=loss.reduction, name=loss.name, dtype=loss.dtype)
        self._loss = loss
        self._memory = memory

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        return self._loss.checked(y_true, y_pred)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        gallery, positives, negatives = self._memory.gallery(labels, embeddings)
        # Separate products, as the memory needs no gradient.
        past = ops.stop_gradient(gallery[ops.shape(embeddings)[0] :])
        scores = [self._loss.scores(embeddings, other) for other in (embeddings, past)]
        return self._loss.pair_loss(
            ops.concatenate(scores, axis=1), positives, negatives
        )


def _dimension(embedder: keras.Model) -> int:
    shape = getattr(embedder, "output_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] is None:
        raise ValueError(
            "`embedder` must be a built model with one output [batch, dimension] of "
            f"known dimension. Received: {shown(embedder)} of output shape {shape}."
        )
    return int(shape[1])


def _replicas() -> int:
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return int(tf.distribute.get_strategy().num_replicas_in_sync)
