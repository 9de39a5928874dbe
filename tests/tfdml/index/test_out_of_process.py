"""Run what an engine may end in a process of its own: a crash is one failed test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfdml
from tests.support.index_kinds import METHODS, skip_unless_installed

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CONTRACT = [HERE / "test_contract.py", HERE / "test_contract_changes.py"]


@pytest.mark.parametrize("method", METHODS)
def test_engine_keeps_the_contract_and_survives(method):
    skip_unless_installed(method)
    # Small galleries never get codes or a tree: there `brute` is what `local` is.
    files = [HERE / "engine_methods.py", *(CONTRACT if method != "brute" else [])]
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
