"""Train from image files on one GPU and on several of one host.

    KERAS_BACKEND=jax python -m benchmarks.training.devices --out devices.jsonl

Each device gets as many images of a batch as the only one gets: `fit` on the batches of
`image_batches`, the same files, multi-similarity with mining over the whole batch. On
JAX `keras.distribution.DataParallel` spreads the batches, on TensorFlow a
`MirroredStrategy`. Each number of devices is measured in a process of its own.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.image_files import write_images
from benchmarks.session import bare_parser, cores_here, machine, write

_IMAGES_PER_CLASS = 4
_WARM_UP = 2  # epochs, of which the first compiles


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.measured:
        _measure(options)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "images"
        write_images(folder, options.images, processes=cores_here())
        given = sys.argv[1:] if arguments is None else list(arguments)
        for count in (1, options.devices):
            command = [sys.executable, "-m", "benchmarks.training.devices", *given]
            command += ["--folder", str(folder), "--measured", str(count)]
            if subprocess.run(command, check=False).returncode:
                return 1
    return 0


def _measure(options: Any) -> None:
    """Measure one number of devices."""
    import keras

    from tfdml.batch_designs import GroupBatches, image_batches
    from tfdml.images import View, labeled_images
    from tfdml.losses import AcrossReplicas, MultiSimilarityLoss
    from tfdml.models import build_embedder

    class Rates(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            rates.append(images / (time.perf_counter() - self.begin))

    labeled = labeled_images(options.folder)
    devices = options.measured
    classes = options.batch * devices // _IMAGES_PER_CLASS
    design = GroupBatches(labeled.labels, _IMAGES_PER_CLASS, classes)
    rates: list[float] = []
    images = options.steps * design.batch_size
    batches = image_batches(
        labeled.files,
        labeled.labels,
        design,
        View(options.image_size),
        steps_per_epoch=options.steps,
    )
    keras.mixed_precision.set_global_policy(options.precision)
    with _spread_over(devices):
        model = build_embedder(
            options.image_size, 512, backbone=options.backbone, weights=None
        )
        loss = MultiSimilarityLoss()
        if devices > 1 and keras.backend.backend() == "tensorflow":
            loss = AcrossReplicas(loss)
        model.compile("adamw", loss=loss, jit_compile=True)
        model.fit(
            batches,
            epochs=_WARM_UP + options.rounds,
            shuffle=False,
            verbose=0,
            callbacks=[Rates()],
        )
    found = {
        "devices": devices,
        "batch": design.batch_size,
        "images_per_second": statistics.median(rates[_WARM_UP:]),
        "of_epochs": rates,
        "cores": cores_here(),
    }
    print(found, flush=True)
    write(options.out, found | machine())


def _spread_over(devices: int) -> Any:
    """Return the scope in which a model is built for so many devices."""
    import keras

    if devices == 1:
        return contextlib.nullcontext()
    if keras.backend.backend() == "jax":
        chosen = keras.distribution.list_devices()[:devices]
        return keras.distribution.DataParallel(devices=chosen).scope()
    import tensorflow as tf

    names = [d.name for d in tf.config.list_logical_devices("GPU")[:devices]]
    return tf.distribute.MirroredStrategy(names).scope()


def _options(arguments: Sequence[str] | None) -> Any:
    made = bare_parser("training.devices", __doc__)
    add = made.add_argument
    add("--devices", type=int, default=2, help="compared with one (2)")
    add("--batch", type=int, default=128, help="images for each device (128)")
    add("--images", type=int, default=10_000, help="JPEG files to read (10000)")
    add("--image-size", type=int, default=224, help="in pixels (224)")
    add("--backbone", default="ResNet50", help="with random weights (ResNet50)")
    add("--precision", default="mixed_bfloat16", help="of the steps (mixed_bfloat16)")
    add("--steps", type=int, default=100, help="of an epoch (100)")
    add("--rounds", type=int, default=3, help="epochs, of which the median counts (3)")
    add("--folder", type=Path, help="write the files there and keep them")
    add("--measured", type=int, default=0, help=argparse.SUPPRESS)
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
