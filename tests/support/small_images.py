"""Small images that a test trains on in seconds."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_shapes(root: Path, *, classes: int, images_per_class: int) -> None:
    """Write `class-C/I.png`: one pattern of light and dark squares per class.

    Colors and noise differ in each image: what a class is must be learned.
    """
    for label in range(classes):
        pattern = np.random.default_rng(label).integers(0, 2, (4, 4))
        folder = root / f"class-{label}"
        folder.mkdir(parents=True)
        for number in range(images_per_class):
            generator = np.random.default_rng([label, number])
            colors = generator.integers([[130] * 3, [0] * 3], [[256] * 3, [126] * 3])
            pixels = colors[pattern].repeat(6, axis=0).repeat(6, axis=1)
            noisy = np.clip(pixels + generator.normal(0, 60, pixels.shape), 0, 255)
            Image.fromarray(noisy.astype("uint8")).save(folder / f"{number}.png")
