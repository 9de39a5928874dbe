"""Code that runs in a process of its own: a crash is a failed test, not the last one.

TensorFlow is kept out of these processes: ScaNN searches without it, and they start in
a tenth of the time.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tfdml

PRELUDE = """
import sys
sys.modules["tensorflow"] = None
import inspect, os, threading
from pathlib import Path
import numpy as np
from tests.support.saved_indexes import use_method as use
from tfdml.index import ExactIndex, ScannIndex, load_index

def draw(rows, dimension=8):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, dimension))
    return centers[np.arange(rows) % 40] + 0.3 * rng.normal(size=(rows, dimension))

def refused(action, error=ValueError):
    try:
        action()
    except error as raised:
        print(raised)
    else:
        raise SystemExit("was not refused")

def finds(index, rows, ids, k=1):
    # Whether rows find the items that they are; hashing may miss one in a thousand.
    found = index.search(rows, k)
    assert np.isfinite(found.scores).all()
    assert all(len(set(row)) == k for row in found.ids.tolist())
    own = np.mean(found.ids[:, 0] == np.array(ids))
    assert own >= (1 if METHOD == "exact" else 0.9), (found.ids[:, 0], ids)

gallery = draw(3000)
use(METHOD)
"""

METHODS = pytest.mark.parametrize("method", ["exact", "hashing", "tree"])


def run(code, method="tree", folder=""):
    """Run code in a new process and return what it prints; it must end well."""
    result = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"METHOD = {method!r}\n{PRELUDE}\n{textwrap.dedent(code)}\nprint('end')",
            folder,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(Path(tfdml.__file__).parents[1])},
    )
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stderr}"
    assert result.stdout.endswith("end\n")
    return result.stdout
