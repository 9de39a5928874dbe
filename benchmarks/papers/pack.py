"""Pack a data set into one file of small JPEGs, with its labels and splits."""

import argparse
import io
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.papers.runs import Tables
from benchmarks.papers.sets import SETS, tables_of
from training.data.data_set import DataSet
from training.data.images import Images
from training.data.source import read_source
from training.recipe.recipe import recipe_of

_QUALITY = 95


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("set", choices=list(SETS), help="which set it is: how it is split")
    add("images", help="its folder or manifest, as `python -m training` has made it")
    add("packed", type=Path, help="the file to write")
    add("--size", type=int, default=96, help="of the images, in pixels (96)")


def run(options: argparse.Namespace) -> int:
    """Pack a set; returns the exit status."""
    count = pack(options.set, options.images, options.packed, options.size)
    size = options.packed.stat().st_size
    print(f"{count:,} images, {size / 2**20:.1f} MiB: {options.packed}")
    return 0


def pack(name: str, images: str, packed: str | PathLike[str], size: int = 96) -> int:
    """Write a set as one file; returns the number of images.

    Args:
        name: Which set of `SETS` it is.
        images: Its folder or manifest.
        packed: The file to write, `.npz`.
        size: Side of the images in pixels.
    """
    changes: Tables = {"data": {"images": images}, "embedder": {"image_size": size}}
    recipe = recipe_of(tables_of(name, changes), name)
    data = read_source(recipe.data).data
    read = Images(data, recipe.view, cache_bytes=0)
    files = [_jpeg(read.central([place])[0]) for place in range(len(data))]
    Path(packed).parent.mkdir(parents=True, exist_ok=True)
    sequences = data.sequences
    np.savez(
        packed,
        settings=np.array(_settings(name)),
        jpegs=np.frombuffer(b"".join(files), "uint8"),
        ends=np.cumsum([len(file) for file in files]),
        labels=data.labels,
        splits=data.splits.astype(str),
        class_names=np.array(data.class_names, str),
        sequences=np.array([] if sequences is None else sequences, str),
    )
    return len(data)


def _settings(name: str) -> str:
    """Return what a packed file depends on and a later version may change."""
    return json.dumps(SETS[name].tables["data"], sort_keys=True)


def _jpeg(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=_QUALITY, subsampling=0)
    return file.getvalue()


def read_packed(name: str, packed: str | PathLike[str]) -> DataSet:
    """Read what `pack` has written; the images are in memory.

    Args:
        name: Which set of `SETS` it must be.
        packed: The file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is of another set or another split.
    """
    with np.load(packed, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    settings = str(arrays.get("settings", "of an earlier version"))
    if settings != _settings(name):
        raise ValueError(
            f"`packed` must be of {name} split by {_settings(name)}: `pack` it again. "
            f"Received: {packed}, split by {settings}."
        )
    whole, ends = arrays["jpegs"].tobytes(), arrays["ends"].tolist()
    images = [
        np.asarray(Image.open(io.BytesIO(whole[start:end])))
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    sequences = arrays["sequences"]
    return DataSet(
        np.stack(images),
        arrays["labels"],
        arrays["splits"],
        tuple(arrays["class_names"].tolist()),
        sequences=sequences if len(sequences) else None,
    )
