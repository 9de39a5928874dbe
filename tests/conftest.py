"""Settings that must be made before Keras is imported, and shared fixtures."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Golden numbers are float64.
os.environ.setdefault("JAX_ENABLE_X64", "1")
