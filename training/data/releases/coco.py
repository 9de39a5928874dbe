"""Read COCO captions: images with several sentences, for caption distances."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import cut, shortened, shown

from ..data_set import DataSet
from .mat_files import known_form

_YEARS = (2017, 2014)
_SPLITS = {"train": "train", "val": "test"}


def year_of(folder: str | os.PathLike[str], year: int | None = None) -> int:
    """Return which release a folder holds: 2017 or 2014.

    Args:
        folder: Holds the lists `annotations/captions_{train,val}YEAR.json`.
        year: The one that is meant; without it the one that is there, 2017 of both.

    Raises:
        FileNotFoundError: A list of that release, or of both, is not there.
        ValueError: There is no release of that year.
    """
    if year is not None and year not in _YEARS:
        raise ValueError(f"`year` must be 2014 or 2017. Received: {shown(year)}.")
    for known in _YEARS if year is None else (year,):
        if all(_list_of(Path(folder), part, known).is_file() for part in _SPLITS):
            return known
    wanted = " or ".join(map(str, _YEARS if year is None else (year,)))
    lists = sorted(Path(folder).glob("annotations/captions_*.json"))
    there = ", ".join(path.name for path in lists) or "none"
    raise FileNotFoundError(
        f"{cut(folder)} must hold both lists of COCO {wanted}, "
        "annotations/captions_trainYEAR.json and captions_valYEAR.json. "
        f"Received: {cut(there)}."
    )


def list_captions(
    folder: str | os.PathLike[str], *, captions: int = 5, year: int | None = None
) -> list[str]:
    """List the captions that `read_coco` needs embeddings of, in its order.

    Training images come first, then validation images, each in the order of their ids;
    an image's captions are together, in the order of theirs.

    Args:
        folder: Holds `annotations/captions_train2017.json` and
            `annotations/captions_val2017.json`, or those of 2014.
        captions: How many of an image, from the first on; in the release each image has
            at least 5.
        year: As in `year_of`.

    Raises:
        FileNotFoundError: A list is not there.
        ValueError: It is of another form, or an image has too few captions.
    """
    found = _images(Path(folder), captions, year)
    return [text for *_, texts in found for text in texts]


def read_coco(
    folder: str | os.PathLike[str],
    embeddings: Callable[[list[str]], np.ndarray] | str | os.PathLike[str],
    *,
    captions: int = 5,
    year: int | None = None,
) -> DataSet:
    """Read COCO 2017 or 2014 with captions; its validation images test.

    Which sentence embedding is used is yours to choose, and so is the label distance
    that follows from it. Of 2017, 118,287 images train and 5,000 test; with 5 captions
    of 384 numbers the labels take 950 MB. Of 2014, which Kim et al., CVPR 2019, took,
    82,783 train and 40,504 test.

    Args:
        folder: Holds `annotations`, `train2017` and `val2017`, or those of 2014.
        embeddings: A function of all captions at once, as `list_captions` lists them,
            to an array `[captions, dimension]`; or a `.npy` file with that array.
        captions: How many of an image, as for `list_captions`.
        year: As in `year_of`.

    Returns:
        The images, with continuous labels float32 `[N, captions, dimension]`. Their
        label distance is `tfdml.ops.caption_distance`.

    Raises:
        FileNotFoundError: A list or the file of embeddings is not there.
        ValueError: A list is of another form, an image has too few captions, or the
            embeddings are not one row of finite numbers a caption, other than all 0.
    """
    folder = Path(folder)
    found = _images(folder, captions, year)
    texts = [text for *_, several in found for text in several]
    if callable(embeddings):
        rows, source = np.asarray(embeddings(texts)), "`embeddings`"
    else:
        rows, source = _load_rows(Path(embeddings)), str(embeddings)
    if rows.ndim != 2 or rows.dtype.kind != "f" or len(rows) != len(texts):
        raise ValueError(
            f"{source} must give floats [{len(texts)}, dimension], one row per "
            f"caption. Received: {rows.dtype} {list(rows.shape)}."
        )
    rows = rows.astype("float32", copy=False)
    bad = ~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1)
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{source} must give finite numbers, not all 0. Row {place} is of the "
            f"caption {shown(texts[place])}."
        )
    return DataSet(
        images=tuple(path for path, _, _ in found),
        labels=rows.reshape(len(found), captions, -1),
        splits=np.array([split for _, split, _ in found]),
    )


def _load_rows(path: Path) -> np.ndarray:
    try:
        rows = np.load(path, allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(
            f"{path} must be a .npy file of floats: {shortened(error)}."
        ) from error
    if not isinstance(rows, np.ndarray):
        raise ValueError(f"{path} must be one .npy array, not an .npz archive.")
    return rows


def _list_of(folder: Path, part: str, year: int) -> Path:
    return folder / "annotations" / f"captions_{part}{year}.json"


def _images(
    folder: Path, captions: int, year: int | None
) -> list[tuple[Path, str, list[str]]]:
    """Return the path, the split and the captions of each image."""
    if captions < 1:
        raise ValueError(f"`captions` must be at least 1. Received: {captions}.")
    found = []
    year = year_of(folder, year)
    for part, split in _SPLITS.items():
        path = _list_of(folder, part, year)
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not {"images", "annotations"} <= set(
            content
        ):
            raise ValueError(f"{path}: must have 'images' and 'annotations'.")
        with known_form(path):
            for name, several in _captioned(content, path, captions):
                found.append((folder / f"{part}{year}" / name, split, several))
    return found


def _captioned(
    content: dict[str, Any], path: Path, captions: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield file name and captions of each image of a list, in the order of ids."""
    texts: dict[int, list[str]] = {}
    for about in sorted(content["annotations"], key=lambda about: about["id"]):
        texts.setdefault(about["image_id"], []).append(about["caption"])
    for image in sorted(content["images"], key=lambda image: image["id"]):
        several = texts.get(image["id"], [])
        if len(several) < captions:
            raise ValueError(
                f"{path}: image {image['id']} must have {captions} captions. "
                f"Received: {len(several)}."
            )
        yield image["file_name"], several[:captions]
