"""Write folders of JPEG files to measure on: seeded, and as large as photographs.

NumPy and Pillow alone: peers' interpreters import it.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASS_IMAGES = 50
"""Images of each class."""

_SIDES = (230, 290)
_QUALITY = 88
_GRAIN = 4.3  # levels of noise; with these an average file has 21 kB
_SCENE = 400
_OCTAVES = (4, 8, 16, 32, 64, 128)
_SHAPES = 12


def write_images(
    folder: Path, count: int, *, seed: int = 0, processes: int = 1
) -> list[Path]:
    """Write JPEGs of 230 to 290 pixels a side and about 21 kB, unless they are there.

    An image shows a part of the scene of its class: smooth noise and shapes under fine
    grain.

    Args:
        folder: Gets a folder for each class.
        count: How many images; each class has 50, the last one what is left.
        seed: Of all random numbers.
        processes: So many write.

    Returns:
        Their paths, sorted.
    """
    about = {"count": count, "seed": seed, "class_images": CLASS_IMAGES}
    note = folder / "files.json"
    if not note.exists() or json.loads(note.read_text("utf-8")) != about:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"{folder} must be empty, or hold the same images.")
        classes = range(-(-count // CLASS_IMAGES))
        write = partial(_write_class, folder, count, seed)
        if processes == 1:
            list(map(write, classes))
        else:
            with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
                list(pool.map(write, classes, chunksize=4))
        note.write_text(json.dumps(about), "utf-8")
    return image_files(folder)


def image_files(folder: Path) -> list[Path]:
    """Return the paths of all images of a folder, those of a class one by one."""
    return sorted(folder.glob("*/*.jpg"))


def class_batches(
    files: Sequence[Path], classes: int, images: int, count: int, *, seed: int = 0
) -> np.ndarray:
    """Draw batches of some images of each of some classes.

    Args:
        files: What `image_files` returned.
        classes: Of a batch; all of them where there are fewer.
        images: Of each class.
        count: Of batches.
        seed: Of the random numbers.

    Returns:
        Positions in `files`, int64 `[count, classes * images]`.
    """
    random = np.random.default_rng(seed)
    names = np.array([file.parent.name for file in files])
    groups = [np.flatnonzero(names == name) for name in np.unique(names)]
    classes = min(classes, len(groups))
    return np.array(
        [
            np.concatenate(
                [
                    random.choice(groups[c], images, replace=len(groups[c]) < images)
                    for c in random.choice(len(groups), classes, replace=False)
                ]
            )
            for _ in range(count)
        ]
    )


def _write_class(folder: Path, count: int, seed: int, label: int) -> None:
    target = folder / f"class-{label:05}"
    target.mkdir()
    scene = _scene(np.random.default_rng([seed, label]))
    first = label * CLASS_IMAGES
    for number in range(min(CLASS_IMAGES, count - first)):
        random = np.random.default_rng([seed, label, number])
        width, height = (int(side) for side in random.integers(*_SIDES, size=2))
        part = random.uniform(0.5, 0.9, 2) * _SCENE
        left, top = random.uniform(0, _SCENE - part)
        box = (left, top, left + part[0], top + part[1])
        image = scene.resize((width, height), Image.Resampling.BILINEAR, box)
        pixels = np.asarray(image) + random.normal(0, _GRAIN, (height, width, 1))
        image = Image.fromarray(pixels.clip(0, 255).astype("uint8"))
        image.save(target / f"{number:03}.jpg", quality=_QUALITY)


def _scene(random: np.random.Generator) -> Image.Image:
    total = np.full((_SCENE, _SCENE, 3), 128.0)
    for side in _OCTAVES:
        coarse = random.normal(0, 160 / side**0.6, (side, side, 3))
        for channel in range(3):
            layer = Image.fromarray(coarse[:, :, channel].astype("float32"))
            smooth = layer.resize((_SCENE, _SCENE), Image.Resampling.BICUBIC)
            total[:, :, channel] += np.asarray(smooth)
    scene = Image.fromarray(total.clip(0, 255).astype("uint8"))
    draw = ImageDraw.Draw(scene)
    for shape in range(_SHAPES):
        x, y = random.uniform(0, _SCENE, 2)
        across, down = random.uniform(10, 90, 2)
        color = tuple(int(level) for level in random.integers(0, 256, 3))
        kind = draw.ellipse if shape % 2 else draw.rectangle
        kind((x, y, x + across, y + down), fill=color)
    return scene
