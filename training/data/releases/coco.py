"""Read COCO captions: images with several sentences, for caption distances."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import shortened, shown

from ..data_set import DataSet
from .mat_files import known_form

_SPLITS = {"train2017": "train", "val2017": "test"}


def list_captions(folder: str | os.PathLike[str], *, captions: int = 5) -> list[str]:
    """List the captions that `read_coco` needs embeddings of, in its order.

    Training images come first, then validation images, each in the order of their ids;
    an image's captions are together, in the order of theirs.

    Args:
        folder: Holds `annotations/captions_train2017.json` and
            `annotations/captions_val2017.json`.
        captions: How many of an image, from the first on; in the release each image has
            at least 5.

    Raises:
        FileNotFoundError: A list is not there.
        ValueError: It is of another form, or an image has too few captions.
    """
    return [text for *_, texts in _images(Path(folder), captions) for text in texts]


def read_coco(
    folder: str | os.PathLike[str],
    embeddings: Callable[[list[str]], np.ndarray] | str | os.PathLike[str],
    *,
    captions: int = 5,
) -> DataSet:
    """Read COCO 2017 with captions; its validation images test.

    Which sentence embedding is used is yours to choose, and so is the label distance
    that follows from it. 118,287 images train and 5,000 test; with 5 captions of 384
    numbers the labels take 950 MB.

    Args:
        folder: Holds `annotations`, `train2017` and `val2017`.
        embeddings: A function of all captions at once, as `list_captions` lists them,
            to an array `[captions, dimension]`; or a `.npy` file with that array.
        captions: How many of an image, as for `list_captions`.

    Returns:
        The images, with continuous labels float32 `[N, captions, dimension]`. Their
        label distance is `tfdml.ops.caption_distance`.

    Raises:
        FileNotFoundError: A list or the file of embeddings is not there.
        ValueError: A list is of another form, an image has too few captions, or the
            embeddings are not one row of finite numbers a caption, other than all 0.
    """
    folder = Path(folder)
    found = _images(folder, captions)
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


def _images(folder: Path, captions: int) -> list[tuple[Path, str, list[str]]]:
    """Return the path, the split and the captions of each image."""
    if captions < 1:
        raise ValueError(f"`captions` must be at least 1. Received: {captions}.")
    found = []
    for folder_name, split in _SPLITS.items():
        path = folder / "annotations" / f"captions_{folder_name}.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not {"images", "annotations"} <= set(
            content
        ):
            raise ValueError(f"{path}: must have 'images' and 'annotations'.")
        with known_form(path):
            for name, several in _captioned(content, path, captions):
                found.append((folder / folder_name / name, split, several))
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
