"""The gallery: which pictures an index holds, and how both lie on disk.

An index folder holds `gallery.json` and one folder `index-XXXXXXXX`, named in it:

    INDEX/gallery.json          pictures, classes, model, name of the index folder
    INDEX/index-3f9a17c2/       the vectors, written by tfdml.index

A new index goes into a folder of a new name, and replacing `gallery.json`, one rename,
is what makes it valid. A build that is killed at any moment therefore leaves the old
index whole, and at most a folder that nothing names; the next build removes it.
"""

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from tfdml.calibration_record import Calibration
from tfdml.index import ScannIndex

__all__ = [
    "Gallery",
    "class_of",
    "load_gallery",
    "read_image_list",
    "save_gallery",
]

_FORMAT = 1
_FILE = "gallery.json"


@dataclass(frozen=True)
class Gallery:
    """The pictures behind an index; row i of one is row i of the other.

    Args:
        root: Folder of the pictures.
        paths: Path of each picture below `root`, with forward slashes. These are the
            ids in the index.
        model_name: Name of the model that embedded them.
        model_version: Its version number.
        model_fingerprint: Its fingerprint, see `serving.models.saved_model`.
        calibration: From which similarity on a picture counts as found; None where the
            model came without, and in galleries of earlier versions.
    """

    root: Path
    paths: tuple[str, ...]
    model_name: str
    model_version: int
    model_fingerprint: str
    calibration: Calibration | None = None

    def class_of(self, row: int) -> str:
        """Return the class of the picture in one row, "" in a flat folder."""
        return class_of(self.paths[row])

    def classes(self) -> set[str]:
        """Return the names of all classes; a flat folder has none."""
        return {name for path in self.paths if (name := class_of(path))}


def class_of(path: str) -> str:
    """Return the class of a picture: the first folder of its path, "" without one."""
    first, separator, _ = path.partition("/")
    return first if separator else ""


def read_image_list(
    only: str | PathLike[str], images_folder: str | PathLike[str]
) -> list[str]:
    """Read a list of pictures from a text file, in the order of its lines.

    Args:
        only: UTF-8 text file with one path below `images_folder` a line; empty lines
            are left out.
        images_folder: Folder that the paths are below.

    Returns:
        The paths, with forward slashes.

    Raises:
        ValueError: A line leads out of the folder, names no file or is there twice,
            or there is no line.
    """
    paths: dict[str, int] = {}
    lines = Path(only).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        path = PurePosixPath(line.strip()).as_posix()
        if not line.strip():
            continue
        where = f"{os.fspath(only)}, line {number}: {path!r}"
        if not _is_below(path):
            raise ValueError(f"{where} must be a path below the image folder.")
        if path in paths:
            raise ValueError(f"{where} is also in line {paths[path]}.")
        if not (Path(images_folder) / path).is_file():
            raise ValueError(f"{where} is no file in {os.fspath(images_folder)!r}.")
        paths[path] = number
    if not paths:
        raise ValueError(f"{os.fspath(only)} lists no image.")
    return list(paths)


def _is_below(path: str) -> bool:
    return not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))


def save_gallery(
    index_folder: str | PathLike[str], index: ScannIndex, gallery: Gallery
) -> None:
    """Write index and gallery; either both become valid or the old ones stay.

    Args:
        index_folder: Folder to write to; made where missing. An index of an earlier
            build in it is replaced.
        index: Index whose ids are `gallery.paths`.
        gallery: Its pictures.
    """
    folder = Path(index_folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"index-{uuid4().hex[:8]}"
    content = {
        "format": _FORMAT,
        "index": name,
        **asdict(gallery),
        "root": str(gallery.root),
        "paths": list(gallery.paths),
    }
    staged = folder / f"{_FILE}.{name}"
    try:
        index.save(folder / name)
        with staged.open("w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(folder / _FILE)
    except BaseException:
        staged.unlink(missing_ok=True)
        shutil.rmtree(folder / name, ignore_errors=True)
        raise
    _remove_leftovers(folder, keep=name)


def _remove_leftovers(folder: Path, keep: str) -> None:
    for path in folder.glob("index-*"):
        if path.name != keep and path.is_dir():
            shutil.rmtree(path)
    for path in folder.glob(f"{_FILE}.index-*"):
        path.unlink()


def load_gallery(index_folder: str | PathLike[str]) -> tuple[ScannIndex, Gallery]:
    """Load what `save_gallery` wrote.

    Args:
        index_folder: Folder that `python -m serving index` wrote.

    Returns:
        The index and its pictures, row by row the same.

    Raises:
        FileNotFoundError: The folder holds no gallery.
        ValueError: It is damaged, or written by a newer version.
    """
    folder = Path(index_folder)
    file = folder / _FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"There is no gallery in {str(index_folder)!r} (no {_FILE}). Build it "
            "with `python -m serving index`."
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        gallery = _parse_gallery(content)
        name = str(content["index"])
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{str(file)!r} is damaged ({type(error).__name__}: {error}). Build the "
            "index again with `python -m serving index`."
        ) from error
    fingerprint = gallery.model_fingerprint
    index = ScannIndex.load(folder / name, model_fingerprint=fingerprint)
    if list(index.ids) != list(gallery.paths):
        raise ValueError(
            f"{str(file)!r} and the index beside it do not list the same images. "
            "Build the index again with `python -m serving index`."
        )
    return index, gallery


def _parse_gallery(content: dict[str, Any]) -> Gallery:
    if content["format"] != _FORMAT:
        raise ValueError(
            f"The gallery has format {content['format']!r}, this version reads format "
            f"{_FORMAT}. Build the index again with `python -m serving index`."
        )
    _check_strings([*content["paths"], content["root"], content["index"]])
    if not all(map(_is_below, [*content["paths"], content["index"]])):
        raise ValueError("The gallery lists a path outside its folder.")
    return Gallery(
        root=Path(content["root"]),
        paths=tuple(content["paths"]),
        model_name=str(content["model_name"]),
        model_version=int(content["model_version"]),
        model_fingerprint=str(content["model_fingerprint"]),
        calibration=_parse_calibration(content.get("calibration")),
    )


def _parse_calibration(values: Any) -> Calibration | None:
    if values is None:
        return None
    try:
        return Calibration.from_json(values)
    except ValueError as error:
        raise ValueError(
            f"The gallery has a damaged calibration. {error} Build the index again "
            "with `python -m serving index`."
        ) from error


def _check_strings(values: Iterable[object]) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"a string is expected, not {value!r}")
