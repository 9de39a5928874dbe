"""Read the retrieval benchmarks of the papers from the files of their releases.

Each function takes the folder that the release unpacks to and returns the papers'
class-disjoint split: the first half of the classes trains, the second half tests
(CUB, Cars); the lists of the release (SOP, In-Shop).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import cut, shown

from ..data_set import DataSet, halve_classes
from .mat_files import load_mat


def read_cub(folder: str | os.PathLike[str]) -> DataSet:
    """Read CUB-200-2011: `images.txt`, `image_class_labels.txt`, `classes.txt`.

    200 classes and 11,788 images in the release: 100 classes train, 100 test. The
    published `train_test_split.txt` is for classification and is not used.

    Args:
        folder: `CUB_200_2011`, with the images in `images`.

    Returns:
        The images with the boxes of `bounding_boxes.txt`, rounded outwards to whole
        pixels, if the file is there; `dataclasses.replace(data, boxes=None)` takes
        whole images, as the papers do.
    """
    folder = Path(folder)
    names = dict(_rows(folder / "classes.txt", 2))
    classes = dict(_rows(folder / "image_class_labels.txt", 2))
    images = dict(_rows(folder / "images.txt", 2))
    _check_same_ids(folder, images, classes)
    order = sorted(names, key=int)
    places = {identifier: i for i, identifier in enumerate(order)}
    labels = np.array([places[classes[identifier]] for identifier in images])
    boxes = None
    if (folder / "bounding_boxes.txt").exists():
        corners = {i: sides for i, *sides in _rows(folder / "bounding_boxes.txt", 5)}
        _check_same_ids(folder, images, corners)
        boxes = _whole_pixels(np.array([corners[i] for i in images], dtype="float64"))
    return DataSet(
        images=tuple(folder / "images" / path for path in images.values()),
        labels=labels,
        splits=halve_classes(labels, len(order)),
        class_names=tuple(names[identifier] for identifier in order),
        boxes=boxes,
    )


def read_cars(folder: str | os.PathLike[str]) -> DataSet:
    """Read Cars-196 from its `.mat` files; needs SciPy, of the extra `data`.

    196 classes and 16,185 images in the release: 98 classes train, 98 test. Both
    published forms are read: `cars_annos.mat` beside `car_ims`; or `devkit` with
    `cars_meta.mat`, `cars_train_annos.mat` and `cars_test_annos_withlabels.mat` (there
    or beside it), beside `cars_train` and `cars_test`. The published training and test
    images are for classification and are put together.

    Returns:
        The images with their boxes; `dataclasses.replace(data, boxes=None)` takes
        whole images, as the papers do.
    """
    folder = Path(folder)
    if (folder / "cars_annos.mat").exists():
        file = load_mat(folder / "cars_annos.mat")
        names = file["class_names"]
        rows = [(folder / str(a.relative_im_path), a) for a in file["annotations"]]
    else:
        names = load_mat(folder / "devkit" / "cars_meta.mat")["class_names"]
        rows = []
        for part, list_name in (
            ("cars_train", "cars_train_annos.mat"),
            ("cars_test", "cars_test_annos_withlabels.mat"),
        ):
            path = folder / "devkit" / list_name
            path = path if path.exists() else folder / list_name
            annotations = load_mat(path)["annotations"]
            rows += [(folder / part / str(a.fname), a) for a in annotations]
    # Classes and corners count from 1, and the second corner is inside of the box.
    labels = np.array([int(a.__dict__["class"]) - 1 for _, a in rows])
    corners = np.array(
        [[a.bbox_x1, a.bbox_y1, a.bbox_x2, a.bbox_y2] for _, a in rows], dtype="int64"
    )
    starts = corners[:, :2] - 1
    return DataSet(
        images=tuple(path for path, _ in rows),
        labels=labels,
        splits=halve_classes(labels, len(names)),
        class_names=tuple(str(name) for name in names),
        boxes=np.concatenate([starts, corners[:, 2:] - starts], axis=1),
    )


def read_sop(folder: str | os.PathLike[str]) -> DataSet:
    """Read Stanford Online Products by `Ebay_train.txt` and `Ebay_test.txt`.

    11,318 classes with 59,551 images train, 11,316 with 60,502 test, in 12
    super-classes, which become the categories.

    Args:
        folder: `Stanford_Online_Products`.
    """
    folder = Path(folder)
    header = ["image_id", "class_id", "super_class_id", "path"]
    rows = []
    for split in ("train", "test"):
        listed = _rows(folder / f"Ebay_{split}.txt", 4, header=header)
        rows += [(path, product, split) for _, product, _, path in listed]
    categories = [path.split("/")[0].removesuffix("_final") for path, _, _ in rows]
    return _by_names(
        [folder / path for path, _, _ in rows],
        [product.zfill(5) for _, product, _ in rows],
        splits=np.array([split for *_, split in rows]),
        categories=np.array(categories),
    )


def read_in_shop(folder: str | os.PathLike[str]) -> DataSet:
    """Read DeepFashion In-Shop Clothes Retrieval by `list_eval_partition.txt`.

    3,997 items with 25,882 images train; of 3,985 test items 14,218 images are
    queries and 12,612 are the gallery. The categories are such as `WOMEN/Dresses`.

    Args:
        folder: Holds `Eval/list_eval_partition.txt` or the file itself, and the
            images in `Img/img` or `img`.

    Raises:
        ValueError: The file has not as many lines as its first one says, or a status
            other than train, query and gallery.
    """
    folder = Path(folder)
    path = folder / "Eval" / "list_eval_partition.txt"
    path = path if path.exists() else folder / "list_eval_partition.txt"
    header = ["image_name", "item_id", "evaluation_status"]
    rows = list(_rows(path, 3, header=header, counted=True))
    for image, _, status in rows:
        if status not in ("train", "query", "gallery"):
            raise ValueError(
                f"{path}: the status must be train, query or gallery. "
                f"Received: {shown(status)} of {cut(image)}."
            )
    root = folder / "Img" if (folder / "Img" / "img").is_dir() else folder
    statuses = np.array([status for *_, status in rows])
    is_train = statuses == "train"
    return _by_names(
        [root / image for image, _, _ in rows],
        [item for _, item, _ in rows],
        splits=np.where(is_train, "train", "test"),
        roles=np.where(is_train, "", statuses),
        categories=np.array(["/".join(image.split("/")[1:3]) for image, _, _ in rows]),
    )


def _by_names(images: list[Path], names: list[str], **others: Any) -> DataSet:
    class_names, labels = np.unique(names, return_inverse=True)
    return DataSet(tuple(images), labels, class_names=tuple(class_names), **others)


def _rows(
    path: Path, columns: int, *, header: list[str] | None = None, counted: bool = False
) -> Iterator[list[str]]:
    """Yield the cells of each line; `counted`: the first line is their number."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = 0
    if counted:
        start = 1
        expected, rows = lines[0].strip(), sum(bool(line.strip()) for line in lines) - 2
        if expected != str(rows):
            raise ValueError(
                f"{path}: the first line says how many images follow. Received: "
                f"{shown(expected)} before {rows}. Is the file cut off?"
            )
    if header is not None:
        if lines[start : start + 1] == [] or lines[start].split() != header:
            raise ValueError(f"{path}:{start + 1}: must be {shown(' '.join(header))}.")
        start += 1
    for number, line in enumerate(lines[start:], start=start + 1):
        cells = line.split(maxsplit=columns - 1)
        if not cells:
            continue
        if len(cells) != columns:
            raise ValueError(
                f"{path}:{number}: must have {columns} values. Received: {shown(line)}."
            )
        yield [cell.strip() for cell in cells]


def _check_same_ids(
    folder: Path, images: dict[str, str], others: dict[str, Any]
) -> None:
    differing = sorted(images.keys() ^ others.keys())
    if differing:
        raise ValueError(
            f"{folder}: the lists must name the same images. Only in one of them: "
            f"{len(differing)}, such as image {cut(differing[0])}."
        )


def _whole_pixels(boxes: np.ndarray) -> np.ndarray:
    starts = np.floor(boxes[:, :2])
    ends = np.ceil(boxes[:, :2] + boxes[:, 2:])
    return np.concatenate([starts, ends - starts], axis=1).astype("int64")
