"""Compute a loss over the whole batch of all replicas of `tf.distribute`."""

import keras

from tfdml._core.tensors import Tensor
from tfdml.losses._base import MetricLoss
from tfdml.messages import shown


class AcrossReplicas(MetricLoss):
    """A loss over the whole batch, although each replica has only a share of it.

    Under `tf.distribute` each replica computes the loss of its own share, which
    contains fewer positives and negatives, so the result depends on the number of
    replicas. This wrapper gathers labels and embeddings from all replicas, computes

        L = loss(all labels, all embeddings)

    and keeps the values of the replica's own anchors. Gradients flow back through the
    gathering to the replica of each embedding. If all replicas have equal shares, the
    reported loss and the update are those of one device with the whole batch, for every
    `MetricLoss`, including those that normalize over the batch. In a last batch that
    does not divide evenly, Keras weights each replica equally, whatever its share: drop
    it if that matters.

    Each replica computes the whole matrix of scores: R replicas take R times the work
    of one device, spread over R devices, and the memory of one device. Only
    embeddings, labels and the gradients of embeddings are exchanged.

    On one replica, and outside `tf.distribute`, it is the loss itself. On JAX under
    `keras.distribution` arrays are global: there the plain loss is already correct, and
    this wrapper changes nothing. On torch it gathers nothing.

    Args:
        loss: Any loss of `tfdml.losses`, which also sets reduction and type.
        name: Name of the loss.

    Raises:
        TypeError: `loss` is not a `MetricLoss`.

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
                "`loss` must be a MetricLoss, as all losses of tfdml.losses are. "
                f"Received: {shown(loss)}."
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


def _shares_a_batch(embeddings: Tensor) -> bool:
    """Return whether this code runs on one of several replicas."""
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
