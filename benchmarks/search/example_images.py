"""Draw images for the benchmark of the page."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 100
SIZE = 300, 225
_COARSE = 6, 8  # patches of color that an image consists of
_QUALITY = 88
_GRAIN = 5  # makes a file as large as that of a photograph, about 17 kB


def draw_image(file: Path, number: int, class_: int) -> None:
    """Write a JPEG of 300 x 225 pixels, soft patches under some grain.

    Args:
        file: To write.
        number: Which image; two numbers give two images.
        class_: Images of one class look alike.
    """
    shared = np.random.default_rng(class_).uniform(0, 255, (*_COARSE, 3))
    generator = np.random.default_rng([number, class_])
    patches = 0.7 * shared + 0.3 * generator.uniform(0, 255, shared.shape)
    soft = Image.fromarray(patches.astype(np.uint8)).resize(
        SIZE, Image.Resampling.BICUBIC
    )
    grain = generator.normal(0, _GRAIN, (SIZE[1], SIZE[0], 1))
    pixels = np.clip(np.asarray(soft) + grain, 0, 255).astype(np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, quality=_QUALITY)


def write_gallery(folder: Path, count: int) -> None:
    """Write images of a hundred classes, a folder each."""
    for number in range(count):
        class_ = number % CLASSES
        draw_image(folder / f"{class_:03}" / f"{number:06}.jpg", number, class_)
