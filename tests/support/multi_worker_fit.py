"""Train as one of several worker processes, or alone: prints what came out as JSON.

`python -m tests.support.multi_worker_fit` takes the backend from KERAS_BACKEND.
TensorFlow reads the cluster from TF_CONFIG, JAX from COORDINATOR, WORKERS and WORKER.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np

from tests.support.distributed_model import BATCH, LOSSES, data, embedder, weights_of
from tfdml.batch_designs import BatchSequence, GroupBatches
from tfdml.losses import AcrossReplicas
from tfdml.models import MultiWorkerModel

BACKEND = keras.backend.backend()
# The first has no positive in a share of the batch, the second needs the square matrix.
CASES = ["top_k", "spread_of_batch"]


class Steps(keras.callbacks.Callback):
    """Notes what `fit` reports after every step."""

    def __init__(self):
        super().__init__()
        self.reports = []

    def on_train_batch_end(self, batch, logs=None):
        self.reports.append([logs["loss"], logs["length"]])


def length(labels, embeddings):
    return keras.ops.sum(keras.ops.square(embeddings), axis=-1)


def trained(model, x, labels=None, **arguments):
    steps = Steps()
    history = model.fit(
        x, labels, epochs=3, shuffle=False, verbose=0, callbacks=[steps], **arguments
    )
    evaluated = model.evaluate(x, labels, verbose=0, **arguments)
    return {
        "steps": steps.reports,
        "epochs": [history.history["loss"], history.history["length"]],
        "evaluated": evaluated,
        "weights": weights_of(model),
    }


def compiled(loss, model_class=keras.Model):
    model = embedder(model_class)
    # A function, which becomes a metric with variables when the model is built.
    model.compile(keras.optimizers.Adam(0.01), loss=loss, metrics=[length])
    return model


def tensorflow_runs():
    import tensorflow as tf

    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.get_strategy()
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    x, labels, _ = data()
    results = {"replicas": strategy.num_replicas_in_sync}
    for name in CASES:
        with strategy.scope():
            model = compiled(AcrossReplicas(LOSSES[name]), MultiWorkerModel)
        results[name] = trained(model, x, labels, batch_size=BATCH)
    results["embedded"] = model.predict(x, verbose=0).tolist()
    with strategy.scope():
        model = compiled(AcrossReplicas(LOSSES["top_k"]), MultiWorkerModel)
    design = GroupBatches(labels, 3, 4, seed=0)
    results["batches"] = trained(model, BatchSequence(design, x, labels))
    return results


def jax_runs():
    count, number = int(os.environ.get("WORKERS", 1)), int(os.environ.get("WORKER", 0))
    if count > 1:
        keras.distribution.initialize(os.environ["COORDINATOR"], count, number)
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(auto_shard_dataset=False)
    )
    x, labels, _ = data()
    # Each process reads its own share of every batch.
    share = np.arange(len(x)).reshape(-1, count, BATCH // count)[:, number].ravel()
    results = {"replicas": len(keras.distribution.list_devices())}
    for name in CASES:
        model = compiled(LOSSES[name])
        results[name] = trained(
            model, x[share], labels[share], batch_size=BATCH // count
        )
    return results


if __name__ == "__main__":
    runs = {"tensorflow": tensorflow_runs, "jax": jax_runs}[BACKEND]()
    json.dump(runs, sys.stdout)
