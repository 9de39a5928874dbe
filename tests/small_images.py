"""Small pictures that a test trains on in seconds."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_shapes(root: Path, *, classes: int, images_per_class: int) -> None:
    """Write `class-C/I.png`: one pattern of light and dark squares a class.

    The colours are random in each image, so that raw pixels say little.
    """
    for label in range(classes):
        pattern = np.random.default_rng(label).integers(0, 2, (4, 4))
        folder = root / f"class-{label}"
        folder.mkdir(parents=True)
        for number in range(images_per_class):
            generator = np.random.default_rng([label, number])
            colors = generator.integers(0, 256, (2, 3))
            picture = colors[pattern].repeat(6, axis=0).repeat(6, axis=1)
            Image.fromarray(picture.astype("uint8")).save(folder / f"{number}.png")
