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

from tests.support.distributed_model import (
    BATCH,
    LOSSES,
    data,
    embedder,
    weights_by_name,
    weights_of,
)
from tfdml.batch_designs import BatchSequence, GroupBatches
from tfdml.losses import AcrossReplicas
from tfdml.models import MultiWorkerModel

BACKEND = keras.backend.backend()
# The first has no positive in a share of the batch, the second needs the square matrix.
CASES = ["top_k", "spread_of_batch"]
LENGTHS = ["length", *(f"{name}_length" for name in CASES)]


class Steps(keras.callbacks.Callback):
    """Notes what `fit` reports after every step."""

    def __init__(self):
        super().__init__()
        self.reports = []

    def on_train_batch_end(self, batch, logs=None):
        self.reports.append(reported(logs))


def length(labels, embeddings):
    return keras.ops.sum(keras.ops.square(embeddings), axis=-1)


def reported(logs):
    """The loss and the lengths of embeddings, the same in every process."""
    return [logs[name] for name in sorted(logs) if name in ("loss", *LENGTHS)]


def trained(model, x, labels=None, **arguments):
    if isinstance(model.output, dict) and labels is not None:
        labels = dict.fromkeys(model.output, labels)
    steps = Steps()
    history = model.fit(
        x, labels, epochs=3, shuffle=False, verbose=0, callbacks=[steps], **arguments
    )
    evaluated = model.evaluate(x, labels, verbose=0, return_dict=True, **arguments)
    return {
        "steps": steps.reports,
        "epochs": reported(history.history),
        "evaluated": reported(evaluated),
    }


def compiled(losses, model_class=keras.Model):
    """A model with an embedder for each loss, or one for a single loss."""
    names = tuple(losses) if isinstance(losses, dict) else ()
    model = embedder(model_class, names)
    # A function, which becomes a metric with variables when the model is built.
    metrics = {name: [length] for name in names} or [length]
    model.compile(keras.optimizers.Adam(0.01), loss=losses, metrics=metrics)
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
    with strategy.scope():
        losses = {name: AcrossReplicas(LOSSES[name]) for name in CASES}
        model = compiled(losses, MultiWorkerModel)
    results["array"] = trained(model, x, labels, batch_size=BATCH)
    results["weights"] = weights_by_name(model)
    embedded = model.predict(x, verbose=0)
    results["embedded"] = {name: rows.tolist() for name, rows in embedded.items()}
    with strategy.scope():
        model = compiled(AcrossReplicas(LOSSES["top_k"]), MultiWorkerModel)
    design = GroupBatches(labels, 3, 4, seed=0)
    results["batches"] = trained(model, BatchSequence(design, x, labels))
    results["weights"]["batches"] = weights_of(model)
    return results


def jax_runs():
    count, number = int(os.environ.get("WORKERS", 1)), int(os.environ.get("WORKER", 0))
    if count > 1:
        keras.distribution.initialize(os.environ["COORDINATOR"], count, number)
    x, labels, _ = data()
    # Each process reads its own share of every batch.
    share = np.arange(len(x)).reshape(-1, count, BATCH // count)[:, number].ravel()
    with keras.distribution.DataParallel(auto_shard_dataset=False).scope():
        model = compiled({name: LOSSES[name] for name in CASES})
        results = {
            "replicas": len(keras.distribution.list_devices()),
            "array": trained(model, x[share], labels[share], batch_size=BATCH // count),
            "weights": weights_by_name(model),
        }
    return results


def runs():
    """Train on the backend that runs."""
    return {"tensorflow": tensorflow_runs, "jax": jax_runs}[BACKEND]()


if __name__ == "__main__":
    json.dump(runs(), sys.stdout)
