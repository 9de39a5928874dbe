"""What the library imports, and what it does without."""

import importlib.metadata
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tfdml
from tests.support.autodiff import BACKEND

pytestmark = pytest.mark.backend


@pytest.mark.slow
def test_library_needs_neither_scann_nor_serving():
    code = (
        "import sys, tfdml.losses, tfdml.layers, tfdml.models\n"
        "from tfdml.metrics import retrieval_metrics\n"
        "bad = {'scann', 'starlette', 'grpc', 'tensorflow_serving'}\n"
        "bad |= {'tfdml.images._read'}\n"
        "if not sys.argv[1] == 'tensorflow': bad |= {'tensorflow'}\n"
        "found = bad & set(sys.modules)\n"
        "sys.exit(f'imported {found}' if found else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, BACKEND], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_checkout_that_is_not_installed_has_a_version(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    file = Path(tfdml.__file__).with_name("_version.py")
    assert runpy.run_path(str(file))["__version__"] == "0+unknown"
