"""Try the Pythons that the full suite does not run on.

The fast suite runs on each of them. From the wheel, outside of the checkout, the
library is imported and the command is asked for help; then some tests run with the
newest TensorFlow, and the losses without any.

    python .ci/pythons.py python3.11    all that the machine offers but this one
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUPPORTED = ("python3.13", "python3.12", "python3.11")
PROCESSES = os.environ.get("TEST_PROCESSES", "2")


@dataclass(frozen=True)
class Trial:
    """What is installed, and which tests run."""

    extras: str
    backend: str
    markers: str
    tests: tuple[str, ...]
    is_checkout: bool = False  # and not the wheel


FAST = Trial("dev", "tensorflow", "not slow and not full", ("tests",), is_checkout=True)
# `dev` has ScaNN's operators for TensorFlow 2.20; this has the newest TensorFlow.
NEWEST = Trial(
    "training,serving,search,test",
    "tensorflow",
    "not slow and not full",
    (
        *("tests/tfdml/images", "tests/tfdml/index", "tests/training/recipe"),
        *("tests/serving/client", "tests/serving/commands"),
        *("tests/serving/endpoint/rpc", "tests/serving/endpoint/rest"),
        "tests/serving/endpoint/test_tensor_proto.py",
    ),
)
# Where there is no TensorFlow.
JAX_ALONE = Trial(
    "jax,search,test",
    "jax",
    "backend and not slow and not full",
    ("tests/tfdml/losses", "tests/tfdml/layers", "tests/tfdml/ops"),
)
USE = "import tfdml, tfdml.serving.client; tfdml.losses.TopKPrecisionLoss()"


def find(python: str) -> str | None:
    """Return where there is such a Python that runs; None if there is none."""
    places = [python]
    if pyenv := shutil.which(
        "pyenv"
    ):  # whose own command fails unless that version is chosen
        known = subprocess.run(
            [pyenv, "whence", "--path", python], capture_output=True, text=True
        )
        places += known.stdout.split()
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            test = [place, "-c", "import venv, ensurepip"]
            if subprocess.run(test, capture_output=True).returncode == 0:
                return place
    return None


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder, and return it."""
    # By way of the source distribution, which leaves no `build` in the checkout.
    build = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def attempt(python: str, trial: Trial, wheel: Path, folder: Path) -> None:
    """Make an environment, try the wheel in it where it is that, and run the tests.

    Raises:
        subprocess.CalledProcessError: Something failed; its output is printed.
    """
    print(f"== {python}: tfdml[{trial.extras}] on {trial.backend}", flush=True)
    environment = dict(os.environ)
    if not trial.is_checkout:  # whose tests choose it themselves, as in `make test`
        environment["KERAS_BACKEND"] = trial.backend

    def call(*command: str | Path, cwd: Path = folder) -> None:
        subprocess.run(command, cwd=cwd, env=environment, check=True)

    call(python, "-m", "venv", "venv")
    bin_folder = folder / "venv" / "bin"
    own = bin_folder / "python"
    pip = (own, "-m", "pip", "install", "--quiet")
    if trial.is_checkout:
        call(*pip, "--editable", f"{ROOT}[{trial.extras}]")
    else:
        call(*pip, f"{wheel}[{trial.extras}]")
        call(own, "-c", USE)
        for words in (["--version"], ["index", "build", "--help"]):
            call(bin_folder / "tfdml", *words)
    pytest = (own, "-m", "pytest", "--quiet", "--numprocesses", PROCESSES)
    call(*pytest, "--dist", "loadfile", "-m", trial.markers, *trial.tests, cwd=ROOT)


def main(tested: str) -> None:
    """Try every other Python that is here, the newest first."""
    others = {python: find(python) for python in SUPPORTED if python != tested}
    for python, place in others.items():
        if place is None:
            print(f"{python} is not here: nothing was tried on it.")
    there = [place for place in others.values() if place is not None]
    with tempfile.TemporaryDirectory() as work:
        wheel = build_wheel(Path(work))
        trials = [(place, FAST) for place in there]
        trials += [(place, NEWEST) for place in there[:1]]
        trials += [(place, JAX_ALONE) for place in there[-1:]]
        for place, trial in trials:
            with tempfile.TemporaryDirectory() as folder:
                attempt(place, trial, wheel, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
