"""Read LSUN room layouts: rooms as maps of walls, floor and ceiling."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import shown
from tfdml.progress import tracked

from ..data_set import DataSet
from .mat_files import known_form, load_mat, text

SURFACES = ("frontal wall", "left wall", "right wall", "floor", "ceiling")
"""What the last axis of the labels stands for."""

_SPLITS = {"training": "train", "validation": "test"}
_UP, _DOWN, _LEFT, _RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)
# Room type -> surface -> the keypoints, counted from 1, that have the surface in their
# middle; where they lie on its edge, also the step into it.
_Place = tuple[tuple[int, ...], tuple[int, int]]
_PLACES: dict[int, dict[str, _Place]] = {
    0: {
        "frontal wall": ((1, 3, 5, 7), (0, 0)),
        "left wall": ((1, 2, 3, 4), (0, 0)),
        "right wall": ((5, 6, 7, 8), (0, 0)),
        "floor": ((3, 4, 5, 6), (0, 0)),
        "ceiling": ((1, 2, 7, 8), (0, 0)),
    },
    1: {
        "frontal wall": ((1, 2, 4, 5), (0, 0)),
        "left wall": ((1, 2, 3), (0, 0)),
        "right wall": ((4, 5, 6), (0, 0)),
        "floor": ((1, 3, 4, 6), (0, 0)),
    },
    2: {
        "frontal wall": ((1, 3, 4, 6), (0, 0)),
        "left wall": ((1, 2, 3), (0, 0)),
        "right wall": ((4, 5, 6), (0, 0)),
        "ceiling": ((1, 2, 4, 5), (0, 0)),
    },
    3: {
        "left wall": ((1, 2, 3), (0, 0)),
        "right wall": ((1, 3, 4), (0, 0)),
        "ceiling": ((1, 2, 4), (0, 0)),
    },
    4: {
        "left wall": ((1, 2, 3), (0, 0)),
        "right wall": ((1, 3, 4), (0, 0)),
        "floor": ((1, 2, 4), (0, 0)),
    },
    5: {
        "left wall": ((1, 2, 4, 5), (0, 0)),
        "right wall": ((1, 3, 4, 6), (0, 0)),
        "floor": ((4, 5, 6), (0, 0)),
        "ceiling": ((1, 2, 3), (0, 0)),
    },
    6: {
        "frontal wall": ((1, 2, 3, 4), (0, 0)),
        "floor": ((3, 4), _DOWN),
        "ceiling": ((1, 2), _UP),
    },
    7: {
        "frontal wall": ((1, 2, 3, 4), (0, 0)),
        "left wall": ((1, 2), _LEFT),
        "right wall": ((3, 4), _RIGHT),
    },
    8: {"frontal wall": ((1, 2), _DOWN), "ceiling": ((1, 2), _UP)},
    9: {"frontal wall": ((1, 2), _UP), "floor": ((1, 2), _DOWN)},
    10: {"left wall": ((1, 2), _LEFT), "right wall": ((1, 2), _RIGHT)},
}


def read_lsun(folder: str | os.PathLike[str], *, size: int = 32) -> DataSet:
    """Read the LSUN room layout challenge; needs SciPy, of the extra `data`.

    4,000 rooms train and the 394 of the validation set test; the layouts of the test
    set are not published. The maps of the release (`layout_seg/NAME.mat`) number the
    surfaces of each room independently. Here each is named by the keypoints and the
    type of the room, so that floors are compared with floors. Rooms whose keypoints do
    not tell the surfaces apart are left out, with a warning that counts them.

    Args:
        folder: Holds `training.mat`, `validation.mat`, `images` and `layout_seg`.
        size: Rows and columns of the labels; each is the pixel in the middle of its
            cell.

    Returns:
        The rooms, with continuous labels uint8 `[N, size, size, 5]`: 1 where a cell is
        of the surface (`SURFACES`), all 0 where it is of none. Their label distance is
        `tfdml.ops.segmentation_distance`. The kind of room is the category.

    Raises:
        FileNotFoundError: A list or a layout is not there.
        ValueError: A file is of another form, or no room is left.
    """
    if size < 1:
        raise ValueError(f"`size` must be at least 1. Received: size={size}.")
    folder = Path(folder)
    images, labels, splits, categories, unclear = [], [], [], [], []
    for name, split in _SPLITS.items():
        path = folder / f"{name}.mat"
        rooms = [room for room in load_mat(path).get(name, ()) if text(room, "image")]
        if not rooms:
            raise ValueError(f"{path}: there is no list {shown(name)} of rooms in it.")
        for room in tracked(rooms, name, len(rooms), "rooms"):
            with known_form(path):
                label = _layout(room, folder / "layout_seg" / f"{room.image}.mat", size)
            if label is None:
                unclear.append(room.image)
                continue
            images.append(folder / "images" / f"{room.image}.jpg")
            labels.append(label)
            splits.append(split)
            categories.append(text(room, "scene"))
    if not labels:
        raise ValueError(f"{folder}: no room has keypoints that fit its layout.")
    if unclear:
        warnings.warn(
            f"{len(unclear)} rooms are left out: their keypoints do not tell the "
            f"surfaces of their layouts apart. The first is {unclear[0]}.",
            stacklevel=2,
        )
    return DataSet(
        images=tuple(images),
        labels=np.array(labels),
        splits=np.array(splits),
        categories=np.array(categories),
    )


def _layout(room: Any, path: Path, size: int) -> np.ndarray | None:
    """Return the one-hot map of a room, or None where its surfaces are unclear."""
    content = load_mat(path)
    layout = content.get("layout", np.zeros(1))
    if not layout.size:
        return None
    if layout.ndim != 2:
        raise ValueError(f"{path}: there is no map 'layout' in it.")
    names = _names(room, layout)
    if names is None:
        return None
    rows, columns = (
        ((np.arange(size) + 0.5) * side / size).astype(int) for side in layout.shape
    )
    cells = layout[np.ix_(rows, columns)]
    one_hot = np.zeros((size, size, len(SURFACES)), dtype="uint8")
    for number, surface in names.items():
        one_hot[..., SURFACES.index(surface)] = cells == number
    return one_hot


def _names(room: Any, layout: np.ndarray) -> dict[int, str] | None:
    """Return what each number of a map stands for."""
    points = np.atleast_2d(np.asarray(room.point, dtype="float64"))
    places = _PLACES.get(int(room.type), {})
    names: dict[int, str] = {}
    for surface, (corners, step) in places.items():
        if max(corners) > len(points):
            return None
        middle = points[np.array(corners) - 1].mean(axis=0).astype(int) + step
        x, y = np.clip(middle, 0, np.array(layout.shape[::-1]) - 1)
        names[int(layout[y, x])] = surface
    there = set(np.unique(layout).tolist()) - {0}
    return names if len(names) == len(places) and names.keys() == there else None
