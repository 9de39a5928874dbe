"""Time the losses of TensorFlow Addons. Run by its own interpreter."""

import warnings
from collections.abc import Callable
from functools import partial

import tensorflow as tf

from benchmarks.batches import CLASS_SIZE, labels_of, random_rows
from benchmarks.peer_worker import measure

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns that it has reached its end of life
    import tensorflow_addons as tfa
    from tensorflow_addons.losses import metric_learning


def _contrastive(labels: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    same = tf.cast(labels[:, tf.newaxis] == labels[tf.newaxis], tf.float32)
    apart = metric_learning.pairwise_distance(rows)
    loss = tfa.losses.ContrastiveLoss()
    return loss(tf.reshape(same, [-1]), tf.reshape(apart, [-1]))


def _npairs(labels: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Take anchors and positives in turn: each class has two rows."""
    logits = tf.matmul(rows[::2], rows[1::2], transpose_b=True)
    return tfa.losses.NpairsLoss()(labels[::2], logits)


CASES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "ContrastiveLoss": _contrastive,
    "TripletSemiHardLoss": tfa.losses.TripletSemiHardLoss(distance_metric="squared-L2"),
    "TripletHardLoss": tfa.losses.TripletHardLoss(0.2, distance_metric="squared-L2"),
    "LiftedStructLoss": tfa.losses.LiftedStructLoss(),
    "NpairsLoss": _npairs,
}


def compiled(
    case: str, batch: int, dimension: int, *, xla: bool
) -> Callable[[], object]:
    loss = CASES[case]
    rows = tf.constant(random_rows(batch, dimension))
    size = 2 if case == "NpairsLoss" else CLASS_SIZE
    labels = tf.constant(labels_of(batch, size=size))

    @tf.function(jit_compile=xla)
    def value_and_gradient(
        labels: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(rows)
            # Its losses take rows of unit length.
            value = loss(labels, tf.math.l2_normalize(rows, axis=1))
        return value, tape.gradient(value, rows)

    return lambda: [x.numpy() for x in value_and_gradient(labels, rows)]


if __name__ == "__main__":
    measure({mode: partial(compiled, xla=mode == "xla") for mode in ("graph", "xla")})
