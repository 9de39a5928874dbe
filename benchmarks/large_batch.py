"""Measure memory and time of a training step in chunks beside the undivided step.

    python -m benchmarks.large_batch --out large_batch.jsonl
    KERAS_BACKEND=jax python -m benchmarks.large_batch --image-size 224 \
        --backbone ResNet50 --batches 256 1024 4096 8192

Each step runs in a process of its own: of one chunk, which is the floor, and of each
batch undivided and in chunks (`tfdml.models.LargeBatch`). On a CPU the memory is what a
step adds to the process, on a GPU (JAX) the peak of the whole process, with weights.
A step that does not fit is an error in its line; an undivided one is then tried no
further.
"""

import json
import os
import subprocess
import sys
import time
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import added_memory
from benchmarks.session import bare_parser, card, machine, write

ROOT = Path(__file__).parents[1]
_BATCHES = (256, 512, 1024, 2048, 4096, 8192)
_MEGA = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.here:
        print(json.dumps(_measured(options)))
        return 0
    about = {**machine(), "chunk": options.chunk, "backbone": options.backbone}
    about |= {"image_size": options.image_size, "loss": options.loss}
    print(about)
    print(f"{'batch':>6}{'step':>12}{'MiB':>10}{'ms':>12}{'ms an image':>14}")
    fits = True
    for batch, is_divided in [
        (options.chunk, False),
        *((b, d) for b in options.batches for d in (False, True)),
    ]:
        if not (is_divided or fits):
            continue
        record = _in_a_process(options, batch, is_divided)
        fits = fits and "error" not in record
        kind = "chunks" if is_divided else "undivided"
        write(options.out, {"batch": batch, "step": kind, **record, **about})
        shown = record.get("error")
        if shown is None:
            ms = record["ms"]
            shown = f"{record['bytes'] / _MEGA:10.0f}{ms:12.1f}{ms / batch:14.3f}"
        print(f"{batch:>6}{kind:>12}{shown}", flush=True)
    return 0


def _in_a_process(options: Any, batch: int, is_divided: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.large_batch", "--here"]
    command += ["--batches", str(batch), "--loss", options.loss]
    command += ["--chunk", str(options.chunk if is_divided else 0)]
    command += ["--image-size", str(options.image_size), "--backbone", options.backbone]
    command += ["--steps", str(options.steps)]
    # With oneDNN TensorFlow keeps freed memory in a pool: a second step would add none.
    run = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return {"error": f" exit status {run.returncode}: {run.stderr[-200:]}"}
    record: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return record


def _measured(options: Any) -> dict[str, float]:
    """Train some steps on one batch, and return their memory and the fastest time."""
    import keras

    import tfdml.losses
    from tfdml.models import LargeBatch, build_embedder

    (batch,) = options.batches
    size = options.image_size
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (batch, size, size, 3), dtype="uint8")
    labels = np.repeat(np.arange(-(-batch // 4)), 4)[:batch].astype("int32")
    keras.utils.set_random_seed(0)
    model = build_embedder(size, 128, backbone=options.backbone)
    if options.chunk:
        model = LargeBatch(model, options.chunk)
    loss = getattr(tfdml.losses, options.loss)()
    backend = keras.backend.backend()
    # On a CPU the loop of TensorFlow is slow under XLA.
    compiled = backend == "jax" or card(backend) is not None
    model.compile(keras.optimizers.SGD(0.01), loss=loss, jit_compile=compiled)

    def step() -> None:
        model.train_on_batch(images, labels)  # waits for the loss

    step()  # compiles
    _, added = added_memory(step)
    times = []
    for _ in range(options.steps):
        start = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - start))
    return {"bytes": _peak_of_card() or added, "ms": min(times)}


def _peak_of_card() -> int:
    """Return the most memory that JAX had in use on a GPU; 0 elsewhere."""
    import keras

    if keras.backend.backend() != "jax":
        return 0
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("peak_bytes_in_use", 0))


def _options(arguments: Sequence[str] | None) -> Any:
    made = bare_parser("large_batch", __doc__)
    add = made.add_argument
    add("--batches", type=int, nargs="+", default=list(_BATCHES), help="their sizes")
    add("--chunk", type=int, default=64, help="images at a time (64)")
    add("--image-size", type=int, default=32, help="in pixels (32)")
    add("--backbone", default="residual", help='of the embedder ("residual")')
    add("--loss", default="MultiSimilarityLoss", help="of tfdml.losses")
    add("--steps", type=int, default=3, help="that are timed (3)")
    add("--here", action="store_true", help=SUPPRESS)
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
