"""Run what ScaNN may end in a process of its own: a crash is one failed test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfdml

pytestmark = pytest.mark.slow

pytest.importorskip("scann")

HERE = Path(__file__).parent
CONTRACT = [HERE / "test_contract.py", HERE / "test_contract_changes.py"]


@pytest.mark.parametrize("method", ["brute", "hashing", "tree"])
def test_scann_keeps_the_contract_and_survives(method):
    # Small galleries never get codes or a tree: there `brute` is what `scann` is.
    files = [HERE / "scann_methods.py", *(CONTRACT if method != "brute" else [])]
    options = ["-v", "--tb=short", "--numprocesses=0", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "pytest", *options, *files],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(tfdml.__file__).parents[1],
        env=os.environ | {"INDEX_KINDS": method},
    )
    # The last line that names a test is that of the one that has ended the process.
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
