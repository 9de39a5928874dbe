"""What the library imports, and what it does without."""

import subprocess
import sys

import pytest

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
