"""Feed the compiled steps of `fit` so that the device stays busy on each backend."""

from collections.abc import Callable, Iterator
from typing import Any

import keras

from .batches import Batch, ImageBatches

_ON_DEVICE = 2  # batches that are copied to the device before their step


def fed(model: keras.Model, batches: ImageBatches, epoch: int) -> dict[str, Any]:
    """Return what `fit` takes its batches from, and prepare the model for it.

    On JAX and torch that is `batches`. On TensorFlow, Keras 3.15 would copy each batch
    when its step begins, and wait for one step before it calls the next: on an NVIDIA
    H200 that cost ResNet-50 two fifths of its speed. There it is a dataset that copies
    batches ahead, and the model calls its compiled step directly. (It does so in either
    case; batches that are drawn by epoch are not copied ahead.)

    Args:
        model: A compiled model that was not trained yet.
        batches: The batches of the run.
        epoch: The first epoch, counted from 0.

    Returns:
        Arguments of `fit`.
    """
    if keras.backend.backend() != "tensorflow":
        return {"x": batches}
    model.train_function = _step_function(model)
    if batches.is_drawn_by_epoch:
        # A thread of TensorFlow must not wait for those of the next epoch.
        return {"x": batches}
    steps = len(batches)
    return {"x": _on_device(batches, epoch * steps), "steps_per_epoch": steps}


def _step_function(model: keras.Model) -> Callable[[Iterator[Any]], Any]:
    import tensorflow as tf

    step = tf.function(
        model.train_step, reduce_retracing=True, jit_compile=model.jit_compile
    )
    return lambda batches: step(next(batches))


def _on_device(batches: ImageBatches, first: int) -> Any:
    import tensorflow as tf

    def generated() -> Iterator[Batch]:
        step = first
        while True:
            yield batches.batch(step)
            step += 1

    def specified(array: Any) -> tf.TensorSpec:
        return tf.TensorSpec(array.shape, array.dtype)

    signature = tf.nest.map_structure(specified, batches.batch(first))
    dataset = tf.data.Dataset.from_generator(generated, output_signature=signature)
    # There is nothing to tune, and the end of a long run would wait for the thread that
    # tunes: with TensorFlow 2.21 for 22 seconds after four minutes.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    devices = tf.config.list_logical_devices("GPU")
    if not devices:
        return dataset.prefetch(_ON_DEVICE)
    copied = tf.data.experimental.prefetch_to_device(devices[0].name, _ON_DEVICE)
    return dataset.apply(copied)
