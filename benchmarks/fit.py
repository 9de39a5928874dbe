"""Measure what a training run costs beyond its bare steps, and how fast it resumes.

    python -m benchmarks.fit

bare: the compiled training step on one batch that is in memory, again and again.
fit: the same steps as `python -m training fit` takes them: batches drawn by their
design, images from the cache, labels, the callbacks of a run, the console, and the
state written at the end of the epoch. Both are run alternately in one process; the
smallest time of each counts. Random changes of the images are a part of the step.
TensorFlow only.

resume: a run is killed (SIGKILL) after its first epoch and started again. The time is
that from the start of the command until training goes on, beside that of a new run.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.session import bare_parser, machine, write

_CLASSES, _IMAGES = 60, 10
_RECIPE = """
[data]
images = "{images}"
test_fraction = 0
validation_fraction = 0
[embedder]
image_size = 64
widths = [32, 64, 128, 128]
[batches]
images_per_class = 4
classes_per_batch = 16
[fit]
steps = {steps}
steps_per_epoch = {epoch}
"""
_AUGMENTATION = "[augmentation]\nzoom = 0.2\nshift = 0.1\nbrightness = 0.1\n"


def main(arguments: Sequence[str] | None = None) -> int:
    made = bare_parser("fit", __doc__)
    made.add_argument("--steps", type=int, default=40, help="steps of a round (40)")
    made.add_argument("--rounds", type=int, default=3, help="rounds of each (3)")
    options = made.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        _write_images(images)
        for name, extra in (("plain", ""), ("augmented", _AUGMENTATION)):
            record = _overhead(Path(folder) / name, images, extra, options)
            share = record["fit_ms"] / record["bare_ms"] - 1
            print(
                f"{name}: bare step {record['bare_ms']:.1f} ms, "
                f"fit {record['fit_ms']:.1f} ms a step, overhead {100 * share:.1f} %"
            )
            write(options.out, {"benchmark": "fit", "name": name, **record})
        record = _resume(Path(folder), images)
        print(
            f"training begins {record['new_seconds']:.1f} s after the start of a new "
            f"run, {record['resumed_seconds']:.1f} s after that of a killed one "
            f"(state of {record['state_megabytes']:.1f} MB)"
        )
        write(options.out, {"benchmark": "resume", **record})
    return 0


def _write_images(root: Path) -> None:
    from PIL import Image

    generator = np.random.default_rng(0)
    for label in range(_CLASSES):
        folder = root / f"class-{label}"
        folder.mkdir(parents=True)
        for number in range(_IMAGES):
            coarse = generator.integers(0, 256, (8, 8, 3), "uint8")
            Image.fromarray(coarse).resize((64, 64)).save(folder / f"{number}.png")


def _recipe(folder: Path, images: Path, extra: str, steps: int, epoch: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recipe.toml"
    text = _RECIPE.format(images=images, steps=steps, epoch=epoch)
    path.write_text(text + extra, encoding="utf-8")
    return path


def _overhead(folder: Path, images: Path, extra: str, options: Any) -> dict[str, Any]:
    """Time bare steps and `fit` alternately; a run is an epoch of `--steps` steps."""
    import keras

    from training.recipe.recipe import read_recipe
    from training.run.fit import fit

    steps = options.steps
    path = _recipe(folder, images, extra, steps * (options.rounds + 1), steps)
    recipe = read_recipe(path)
    bare: list[float] = []
    whole: list[float] = []

    class Alternate(keras.callbacks.Callback):
        """Times each epoch but the first, which compiles, and bare steps after each."""

        begin = 0.0

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch:
                whole.append((time.perf_counter() - self.begin) / steps)
            bare.append(_bare_step(self.model, recipe, steps))
            self.begin = time.perf_counter()

    with contextlib.redirect_stdout(io.StringIO()):
        fit(recipe, folder / "run", callbacks=[Alternate()])
    times = {"bare_ms": 1000 * min(bare), "fit_ms": 1000 * min(whole)}
    return {**times, "batch": _batch_size(recipe), **machine()}


def _batch_size(recipe: Any) -> int:
    return recipe.batches.images_per_class * recipe.batches.classes_per_batch


def _bare_step(model: Any, recipe: Any, steps: int) -> float:
    """Return the seconds that a step takes on one batch in memory."""
    import tensorflow as tf

    batch = _batch_size(recipe)
    images = np.random.default_rng(0).integers(0, 256, (batch, 64, 64, 3), "uint8")
    changes = recipe.augmentation
    inputs = (images, changes.numbers(0, 0, batch)) if changes else images
    labels = np.repeat(np.arange(batch // 4), 4)
    iterator = iter(tf.data.Dataset.from_tensors((inputs, labels)).repeat())
    run: Callable = model.train_function
    np.asarray(run(iterator)["loss"])
    start = time.perf_counter()
    for _ in range(steps):
        logs = run(iterator)
    np.asarray(logs["loss"])  # waits for the last step
    return (time.perf_counter() - start) / steps


def _resume(folder: Path, images: Path) -> dict[str, Any]:
    recipe = _recipe(folder / "resume", images, "", 40, 10)
    run = folder / "resume" / "run"
    command = [sys.executable, "-m", "training", "fit", str(recipe), "--run", str(run)]
    state = run.with_name("run.unfinished") / "state.npz"
    seconds = {}
    for name in ("new", "resumed"):
        before = state.stat().st_mtime_ns if state.exists() else 0
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            seconds[f"{name}_seconds"] = _until_training(process, state, start, name)
            while state.stat().st_mtime_ns == before or _epochs(state) < 1:
                if process.poll() is not None:
                    raise RuntimeError(
                        f"The {name} run ended with status {process.returncode}."
                    )
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    return {
        **seconds,
        "state_megabytes": state.stat().st_size / 2**20,
        **machine(),
    }


def _until_training(process: Any, state: Path, start: float, name: str) -> float:
    """Wait until a new run has written its first state, or a killed one goes on."""
    while process.poll() is None:
        if name == "new" and state.exists():
            return time.perf_counter() - start
        if name == "resumed":
            line = process.stdout.readline()
            if line.startswith("Resuming after epoch"):
                return time.perf_counter() - start
        time.sleep(0.005)
    raise RuntimeError(f"The {name} run ended with status {process.returncode}.")


def _epochs(state: Path) -> int:
    from training.run.state import read_state

    return int(read_state(state)[1]["epochs"])


if __name__ == "__main__":
    sys.exit(main())
