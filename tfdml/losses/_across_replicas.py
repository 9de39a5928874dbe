"""Training on the replicas of `tf.distribute`: every batch is seen whole."""

from typing import Any

import keras

from tfdml.losses._base import MetricLoss
from tfdml.ops import Tensor


@keras.saving.register_keras_serializable(package="tfdml")
class AcrossReplicas(MetricLoss):
    """A loss that compares the whole batch although each replica has a share of it.

    Under `tf.distribute` each replica computes the loss of its own share, which then
    holds fewer positives and negatives, and the result depends on the number of
    replicas. This wrapper gathers labels and embeddings from all replicas, computes

        L = loss(all labels, all embeddings)

    and keeps the values of the replica's own anchors. Gradients flow back through the
    gathering to the replica that each embedding came from. Where all replicas have
    equal shares, the loss that is reported and the update are those of one device with
    the whole batch, for every `MetricLoss`, also for one that normalises over the batch
    or needs a square matrix. Of a last batch that does not divide evenly Keras weighs
    each replica alike, whatever its share: drop it if that matters.

    Each replica computes the whole matrix of scores: R replicas take R times the work
    of one device, spread over R devices, and the memory of one device. Only the
    embeddings, the labels and the embeddings' gradients travel.

    On one replica, and outside `tf.distribute`, it is the loss itself. On JAX under
    `keras.distribution` arrays are global: there the plain loss is right already, and
    this wrapper changes nothing. On torch it gathers nothing.

    Args:
        loss: Any loss of `tfdml.losses`. Its reduction and type are taken over.
        name: Name of the loss.

    Raises:
        TypeError: `loss` is no `MetricLoss`.

    Example:
        >>> from tfdml.losses import TopKPrecisionLoss
        >>> loss = AcrossReplicas(TopKPrecisionLoss(k=1))
        >>> value = loss([7, 7, 9], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    """

    def __init__(
        self, loss: MetricLoss, *, name: str | None = "across_replicas"
    ) -> None:
        if not isinstance(loss, MetricLoss):
            raise TypeError(
                "`loss` must be a loss of tfdml.losses, a MetricLoss. "
                f"Received: {loss!r}."
            )
        super().__init__(reduction=loss.reduction, name=name, dtype=loss.dtype)
        self.loss = loss

    def checked(self, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor]:
        """Check this replica's share as the loss does. See `MetricLoss.checked`."""
        return self.loss.checked(y_true, y_pred)

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Compute one loss per anchor of this replica, `[B]`."""
        if _shares_a_batch(embeddings):
            return _own_values(self.loss, labels, embeddings)
        return self.loss.call(labels, embeddings)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        loss = keras.saving.serialize_keras_object(self.loss)
        return {"loss": loss, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AcrossReplicas":
        """Build the loss from the dictionary of `get_config`."""
        loss = keras.saving.deserialize_keras_object(config["loss"])
        return cls(loss, name=config["name"])


@keras.saving.register_keras_serializable(package="tfdml")
class MultiWorkerModel(keras.Model):
    """A model whose `fit` works under `tf.distribute.MultiWorkerMirroredStrategy`.

    The `fit` and `evaluate` of Keras 3.15 fail there (keras-team/keras#20585), at two
    places. To learn the shapes of a model, the first batch is averaged over the
    workers, which TensorFlow can do in a compiled function alone; this model looks at
    its own share. And the numbers that a step reports are averaged along an axis, which
    scalars do not have; this model reports vectors of one number. Everywhere else it is
    a plain `keras.Model`.

    All workers must run the same program with the same seed: each reads every batch and
    keeps its own share of it. They wait for each other wherever metrics are read, so
    all must do it. Save from one of them.

    Args:
        inputs: Inputs, as of a functional `keras.Model`.
        outputs: Outputs.
        name: Name of the model.

    Example:
        >>> import keras
        >>> inputs = keras.Input((4,))
        >>> model = MultiWorkerModel(inputs, keras.layers.Dense(3)(inputs))
        >>> model.compile("sgd", loss="mse")
    """

    def train_step(self, *arguments: Any) -> Any:
        """Do one step as Keras does, on whichever backend."""
        return self._reported(super().train_step(*arguments))

    def test_step(self, *arguments: Any) -> Any:
        """Evaluate one batch as Keras does, on whichever backend."""
        return self._reported(super().test_step(*arguments))

    def _reported(self, logs: Any) -> Any:
        if not self._is_on_one_of_several_workers():
            return logs
        return {name: keras.ops.reshape(value, [1]) for name, value in logs.items()}

    def _maybe_symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> None:
        if not self._is_on_one_of_several_workers():
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
            return
        strategy = self.distribute_strategy
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = next(batches)
                break
        # Any share tells the shapes.
        share = keras.tree.map_structure(
            lambda values: strategy.experimental_local_results(values)[0], data_batch
        )
        with strategy.scope():
            self._symbolic_build(data_batch=share)

    def _is_on_one_of_several_workers(self) -> bool:
        if keras.backend.backend() != "tensorflow":
            return False
        strategy = self.distribute_strategy
        replicas = strategy.num_replicas_in_sync
        return bool(replicas > 1 and replicas > len(strategy.extended.worker_devices))


def _shares_a_batch(embeddings: Tensor) -> bool:
    """Whether this code runs on one of several replicas of `tf.distribute`."""
    if keras.backend.backend() != "tensorflow":
        return False
    if keras.backend.is_keras_tensor(embeddings):
        return False
    import tensorflow as tf

    if tf.distribute.in_cross_replica_context():
        return False
    return bool(tf.distribute.get_replica_context().num_replicas_in_sync > 1)


def _own_values(loss: MetricLoss, labels: Tensor, embeddings: Tensor) -> Tensor:
    """Compute the loss of the gathered batch and cut out this replica's anchors."""
    import tensorflow as tf

    replica = tf.distribute.get_replica_context()
    # TensorFlow 2.20 gathers over workers only what has a device: arguments have none.
    labels, embeddings = tf.identity(labels), tf.identity(embeddings)
    count = tf.shape(labels)[0]
    # One call each: a gathered integer has no gradient to send back.
    counts = replica.all_gather(tf.reshape(count, [1]), axis=0)
    all_labels = replica.all_gather(labels, axis=0)
    all_embeddings = replica.all_gather(embeddings, axis=0)
    start = tf.reduce_sum(counts[: replica.replica_id_in_sync_group])
    values = loss.call(all_labels, all_embeddings)
    return values[start : start + count]
