"""Compare one GPU with several, on JAX: equal losses, and the time of a step.

    KERAS_BACKEND=jax python -m benchmarks.devices --out devices.jsonl

A residual network embeds a batch that `keras.distribution.DataParallel` spreads over
the first devices; pairs are compared across the whole batch. The losses of three steps
from the same weights are compared with those of one device; then steps are timed.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.session import bare_parser, machine, write

_LOSSES = ("TopKPrecisionLoss", "MultiSimilarityLoss", "TripletLoss")
_TIMED = 20


def main(arguments: Sequence[str] | None = None) -> int:
    made = bare_parser("devices", __doc__)
    made.add_argument("--batch", type=int, default=512, help="of all devices (512)")
    made.add_argument("--image-size", type=int, default=128, help="in pixels (128)")
    options = made.parse_args(arguments)
    import keras

    devices = keras.distribution.list_devices()
    if keras.backend.backend() != "jax" or len(devices) < 2:
        sys.exit(
            "At least 2 devices of JAX are needed. "
            f"Received: {keras.backend.backend()}, {devices}."
        )
    for name in _LOSSES:
        one, several = (
            _trained(name, used, options) for used in (devices[:1], devices)
        )
        apart = np.abs(np.array(several["losses"]) / np.array(one["losses"]) - 1).max()
        ratio = several["step_ms"] / one["step_ms"]
        print(
            f"{name}: losses of 3 steps apart by at most {apart:.1e} of their size; "
            f"step {several['step_ms']:.1f} ms on {len(devices)} devices, "
            f"{one['step_ms']:.1f} ms on one ({ratio:.2f})",
            flush=True,
        )
        about = {"batch": options.batch, "image_size": options.image_size, **machine()}
        write(
            options.out,
            {"loss": name, "devices": len(devices), "one": one, "several": several}
            | about,
        )
    return 0


def _trained(name: str, devices: list[str], options: Any) -> dict[str, Any]:
    import keras

    import tfdml.losses
    from tfdml.models import build_embedder

    batch, size = options.batch, options.image_size
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (batch, size, size, 3)).astype("float32")
    labels = np.repeat(np.arange(-(-batch // 4)), 4)[:batch].astype("int32")

    class Repeated(keras.utils.PyDataset):
        def __len__(self) -> int:
            return _TIMED

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            return images, labels

    class Times(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())

    ends: list[float] = []
    with keras.distribution.DataParallel(devices=devices).scope():
        keras.utils.set_random_seed(3)
        model = build_embedder(size, 128, widths=(64, 128, 256, 512), blocks=2)
        loss = getattr(tfdml.losses, name)()
        model.compile(keras.optimizers.SGD(0.01), loss=loss, jit_compile=True)
        history = model.fit(
            images, labels, batch_size=batch, epochs=3, shuffle=False, verbose=0
        )
        model.fit(Repeated(), epochs=3, verbose=0, callbacks=[Times()])
    steps = np.diff(ends) / _TIMED
    return {"losses": history.history["loss"], "step_ms": 1000 * float(steps.min())}


if __name__ == "__main__":
    sys.exit(main())
