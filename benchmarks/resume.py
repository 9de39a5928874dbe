"""Measure how soon a killed training run goes on.

    python -m benchmarks.resume

A run is killed (SIGKILL) after its first epoch and started again. The time is that from
the start of the command until training goes on, beside that of a new run.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.image_files import write_images
from benchmarks.session import bare_parser, machine, write

_IMAGES = 400
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
classes_per_batch = 8
[fit]
steps = 200
steps_per_epoch = 5
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = bare_parser("resume", __doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_images(folder / "images", _IMAGES)
        record = _resume(folder)
    print(
        f"training begins {record['new_seconds']:.1f} s after the start of a new run, "
        f"{record['resumed_seconds']:.1f} s after that of a killed one "
        f"(state of {record['state_megabytes']:.1f} MB)"
    )
    write(options.out, {"benchmark": "resume", **record})
    return 0


def _resume(folder: Path) -> dict[str, Any]:
    recipe, run = folder / "recipe.toml", folder / "run"
    recipe.write_text(_RECIPE.format(images=folder / "images"), encoding="utf-8")
    command = [sys.executable, "-m", "training", "fit", str(recipe), "--run", str(run)]
    state = run.with_name("run.unfinished") / "state.npz"
    seconds = {}
    for name in ("new", "resumed"):
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
            while _epochs(state) < 1:  # the one that goes on has done them
                if process.poll() is not None:
                    raise RuntimeError(
                        f"The {name} run ended with status {process.returncode}."
                    )
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
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
