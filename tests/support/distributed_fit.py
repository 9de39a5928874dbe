"""Train on one device and on two, in a process of its own: prints both as JSON.

`python -m tests.support.distributed_fit`, with the backend in KERAS_BACKEND.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import keras

from tests.support.distributed_model import BATCH, LOSSES, data, embedder, weights_of
from tfdml.losses import AcrossReplicas, TopKPrecisionLoss
from tfdml.models import CrossBatchMemory

BACKEND = keras.backend.backend()


def trained(loss, model=None, sample_weight=None, **arguments):
    """Losses of three epochs, the loss of evaluation, and the weights at the end."""
    x, labels, _ = data()
    model = model or embedder()
    model.compile(keras.optimizers.SGD(0.1), loss=loss, **arguments)
    history = model.fit(
        x,
        labels,
        batch_size=BATCH,
        epochs=3,
        shuffle=False,
        verbose=0,
        sample_weight=sample_weight,
    )
    evaluated = model.evaluate(x, labels, batch_size=BATCH, verbose=0)
    return {
        "losses": history.history["loss"],
        "evaluated": evaluated,
        "weights": weights_of(model),
    }


def tensorflow_runs():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    results = {name: {"one": trained(loss)} for name, loss in LOSSES.items()}
    weights = data()[2]
    results["weighted"] = {"one": trained(LOSSES["top_k"], sample_weight=weights)}
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        for name, loss in LOSSES.items():
            results[name]["two"] = trained(AcrossReplicas(loss))
        results["weighted"]["two"] = trained(
            AcrossReplicas(LOSSES["top_k"]), sample_weight=weights
        )
        results["top_k"]["shares"] = trained(LOSSES["top_k"])
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
    results = {}
    for name, count in (("one", 1), ("two", 2)):
        distribution = keras.distribution.DataParallel(
            devices=keras.distribution.list_devices()[:count]
        )
        with distribution.scope():
            for loss_name, loss in LOSSES.items():
                run = trained(AcrossReplicas(loss) if count == 2 else loss)
                results.setdefault(loss_name, {})[name] = run
            results["top_k"][f"plain_{name}"] = trained(LOSSES["top_k"])
            memory = CrossBatchMemory(embedder(), 20)
            results.setdefault("memory", {})[name] = trained(LOSSES["top_k"], memory)
    return results


if __name__ == "__main__":
    runs = {"tensorflow": tensorflow_runs, "jax": jax_runs}[BACKEND]()
    json.dump(runs, sys.stdout)
