"""Train on one device and on two, in a process of its own: prints both as JSON.

`python -m tests.support.distributed_fit`, with the backend in KERAS_BACKEND.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

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
from tfdml.losses import AcrossReplicas, TopKPrecisionLoss
from tfdml.models import CrossBatchMemory, LargeBatch

BACKEND = keras.backend.backend()


def fitted(model, loss, **arguments):
    """Compile and train a model; return the history and the losses of evaluation."""
    x, labels, _ = data()
    if isinstance(loss, dict):
        labels = dict.fromkeys(loss, labels)
    model.compile(keras.optimizers.SGD(0.1), loss=loss)
    common = {"batch_size": BATCH, "verbose": 0}
    history = model.fit(x, labels, epochs=3, shuffle=False, **common, **arguments)
    return history.history, model.evaluate(x, labels, return_dict=True, **common)


def trained_by_all(wrapper):
    """Train an embedder for each wrapped loss, and one for the first as it is.

    What is reported is the sum over the wrapped losses.
    """
    losses = {name: wrapper(loss) for name, loss in LOSSES.items()}
    losses["plain"] = LOSSES["top_k"]
    model = embedder(names=tuple(losses))
    before = weights_by_name(model)
    history, evaluated = fitted(model, losses)
    return {
        "losses": np.subtract(history["loss"], history["plain_loss"]).tolist(),
        "evaluated": evaluated["loss"] - evaluated["plain_loss"],
        "before": before,
        "weights": weights_by_name(model),
    }


def trained(loss, model=None, **arguments):
    """Train one embedder for one loss."""
    model = model or embedder()
    history, evaluated = fitted(model, loss, **arguments)
    return {
        "losses": history["loss"],
        "evaluated": evaluated["loss"],
        "weights": weights_of(model),
    }


def unwrapped(loss):
    return loss


def tensorflow_runs():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    loss, weights = LOSSES["top_k"], data()[2]
    results = {"all": {"one": trained_by_all(unwrapped)}}
    results["weighted"] = {"one": trained(loss, sample_weight=weights)}
    results["undivided"] = trained(loss)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        results["all"]["two"] = trained_by_all(AcrossReplicas)
        weighted = trained(AcrossReplicas(loss), sample_weight=weights)
        results["weighted"]["two"] = weighted
        # Each share of six in two chunks.
        divided = LargeBatch(embedder(), 3)
        results["divided"] = trained(AcrossReplicas(loss), divided)
        try:
            CrossBatchMemory(embedder(), 4)
        except ValueError as error:
            results["refused"] = str(error)
        results["uneven"] = uneven(strategy)
    return results


def uneven(strategy):
    """Values of shares of 5 and 3 anchors, and of the same 8 on one device."""
    import tensorflow as tf

    x, labels, _ = data()
    loss = TopKPrecisionLoss(k=3, margin=0.3, reduction=None)

    def share(context):
        part = [slice(0, 5), slice(5, 8)][context.replica_id_in_sync_group]
        return tf.constant(labels[part] % 4), tf.constant(x[part])

    inputs = [
        strategy.experimental_distribute_values_from_function(
            lambda context, i=i: share(context)[i]
        )
        for i in range(2)
    ]

    @tf.function
    def values(labels, x):
        return strategy.run(AcrossReplicas(loss), args=(labels, x))

    parts = strategy.experimental_local_results(values(*inputs))
    return {
        "two": [part.numpy().tolist() for part in parts],
        "one": loss(labels[:8] % 4, x[:8]).numpy().tolist(),
    }


def jax_runs():
    import jax

    devices = jax.devices()
    assert len(devices) == 2
    results = {"all": {}, "memory": {}}
    for name, count in (("one", 1), ("two", 2)):
        distribution = keras.distribution.DataParallel(
            devices=keras.distribution.list_devices()[:count]
        )
        with distribution.scope():
            wrapper = AcrossReplicas if count == 2 else unwrapped
            results["all"][name] = trained_by_all(wrapper)
            results.setdefault("divided", {})[name] = trained(
                LOSSES["top_k"], LargeBatch(embedder(), 4)
            )
            memory = CrossBatchMemory(embedder(), 20)
            results["memory"][name] = trained(LOSSES["top_k"], memory)
    return results


if __name__ == "__main__":
    runs = {"tensorflow": tensorflow_runs, "jax": jax_runs}[BACKEND]()
    json.dump(runs, sys.stdout)
