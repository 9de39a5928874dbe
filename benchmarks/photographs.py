"""Write JPEGs cut out of photographs, to measure on."""

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375
_PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "ihc", "motorcycle_left")


def write_photographs(folder: Path, count: int) -> list[Path]:
    """Write JPEGs of 500 x 375 pixels, cut out of the photographs of scikit-image."""
    import skimage

    source = Path(skimage.__file__).parent / "data"
    photographs = [
        Image.open(source / f"{name}.{_ending(name)}") for name in _PHOTOGRAPHS
    ]
    generator = np.random.default_rng(0)
    files = []
    for number in range(count):
        image = photographs[number % len(photographs)].convert("RGB")
        width = min(image.width, image.height * WIDTH / HEIGHT)
        width *= generator.uniform(0.7, 1.0)
        height = width * HEIGHT / WIDTH
        left = generator.uniform(0, image.width - width)
        top = generator.uniform(0, image.height - height)
        box = (left, top, left + width, top + height)
        part = image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS, box)
        files.append(folder / f"{number:05}.jpg")
        part.save(files[-1], quality=90)
    return files


def _ending(name: str) -> str:
    return "jpg" if name == "rocket" else "png"
