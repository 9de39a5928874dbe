"""Skip tests where a package that they need is not installed."""

import importlib.util

import pytest


def skip_without(package):
    """Skip a test, or a file that calls it while it is imported.

    Unlike `pytest.importorskip` it imports nothing: `import scann` alone loads its
    TensorFlow operators, which fail beside any TensorFlow but 2.20.
    """
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def skip_without_scann_operators():
    """Skip where ScaNN's operators for TensorFlow cannot be loaded."""
    skip_without("scann")
    import tensorflow as tf

    if not tf.__version__.startswith("2.20."):
        pytest.skip(
            f"ScaNN's operators need TensorFlow 2.20, here is {tf.__version__}",
            allow_module_level=True,
        )
