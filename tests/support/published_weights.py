"""Weights of published networks, drawn by lot, in the format of their files."""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "goldens" / "golden_networks.json"
# There are none while they are made.
GOLDENS = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}


def drawn_weights(shapes):
    """Return float32 arrays by name, the same whenever it is called.

    Features stay within a few powers of 10: the weights of a convolution are scaled by
    its inputs, and variances are about 1.
    """
    # The stream of RandomState never changes.
    random = np.random.RandomState(0)
    drawn = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            drawn[name] = np.array(1, "int64")
            continue
        if len(shape) > 1:
            values = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        elif name.endswith(("weight", "running_var")):
            values = random.uniform(0.5, 1.5, shape)
        else:
            values = random.standard_normal(shape) * 0.1
        drawn[name] = values.astype("float32")
    return drawn


def drawn_images():
    """Return RGB images of 0 to 255, uint8 `[2, 100, 100, 3]`.

    Sides of 50, 25, 12, 6 and 3 pixels follow, of which the odd ones tell how a pool
    ends.
    """
    return np.random.RandomState(1).randint(0, 256, (2, 100, 100, 3)).astype("uint8")
