"""Make the batches that are timed, by NumPy alone: peers' interpreters import it."""

import numpy as np

CLASS_SIZE = 4
PROXIES = 1000
CENTERS = 10
"""Of each class, for SoftTriple."""
MEMORY = 8192
"""Past embeddings, for cross-batch memory."""


def random_rows(*shape: int, seed: int = 0) -> np.ndarray:
    """Return gaussian numbers in float32. Zeros would take other paths, and faster."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def labels_of(
    rows: int, classes: int | None = None, size: int = CLASS_SIZE
) -> np.ndarray:
    """Return `size` rows of each class in turn, `[rows]`, all below `classes`."""
    labels = np.arange(rows) // size
    return (labels if classes is None else labels % classes).astype("int32")
