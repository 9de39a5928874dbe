"""Settings that must be made before Keras is imported, and shared fixtures."""

import os
import random

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Golden numbers are float64.
os.environ.setdefault("JAX_ENABLE_X64", "1")
# XLA compiles thousands of small functions that run once: the passes of LLVM that make
# code fast take longer than all else.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
)
if os.environ.get("KERAS_BACKEND") == "torch":
    from keras.src.backend.common import dtypes

    # Keras 3.15 computes products and sums of float64 in float32 on torch.
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"


def pytest_collection_modifyitems(items):
    """Refuse names with an address of memory: each process would have others."""
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"Give the cases `ids`: {named}")


@pytest.fixture(autouse=True)
def seeded():
    """The weights of new layers are the same in every run: Keras seeds them by this."""
    random.seed(0)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, for the tests of the page."""
    from tests.support.running_chromium import chromium

    with chromium() as browser:
        yield browser
