"""Losses across the replicas of `tf.distribute`: every batch is seen whole."""

from typing import Any

import keras

from tfdml.losses.base import MetricLoss
from tfdml.pairs import Tensor

__all__ = ["AcrossReplicas"]


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
    count = tf.shape(labels)[0]
    # One call each: a gathered integer has no gradient to send back.
    counts = replica.all_gather(tf.reshape(count, [1]), axis=0)
    all_labels = replica.all_gather(labels, axis=0)
    all_embeddings = replica.all_gather(embeddings, axis=0)
    start = tf.reduce_sum(counts[: replica.replica_id_in_sync_group])
    values = loss.call(all_labels, all_embeddings)
    return values[start : start + count]
