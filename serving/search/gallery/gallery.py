"""Save and load a gallery: the index of a folder of images, and where they are.

The folder of a gallery is that of a saved index; the rest of the gallery is in the
manifest of the index (`notes`). So one rename makes both valid, a build that is killed
leaves the previous gallery, and the folder may be moved or copied:

    INDEX/manifest.json, data-*     the index, see `tfdml.index`
    INDEX/pictures/                 images that were added later, stored only here

An id is the path of an image below `root`. The attribute `class` is its class;
`picture` is the name of its file in INDEX/pictures, if it is stored there.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.command_parser import command
from tfdml.index import Index, LocalIndex, load_index
from tfdml.messages import shortened, shown
from tfdml.metrics import Calibration
from tfdml.versioned_folder import check_destination, check_unlocked

from ...storage.remote_folder import RemoteFolder, is_remote
from .stored_images import StoredImages

CLASS = "class"
"""Name of the attribute that holds the class of an image."""

_FORMAT = 2
_NOTE = "gallery"
_FILE_OF_FORMAT_1 = "gallery.json"


@dataclass(frozen=True)
class Gallery:
    """Where the images of an index are, and which model embedded them.

    Args:
        root: Folder of the images, here or in the cloud; ids are paths below it.
        model_name: Name of the model that embedded them.
        model_version: Its version number.
        calibration: The similarity from which an image is a match; None if the model
            has no calibration.
    """

    root: Path | RemoteFolder
    model_name: str
    model_version: int
    calibration: Calibration | None = None


def class_of(path: str) -> str:
    """Return the class of an image: the first folder of its path, or ""."""
    first, separator, _ = path.partition("/")
    return first if separator else ""


def class_attributes(paths: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the attribute `class` of images, for the index."""
    return {CLASS: [class_of(path) or None for path in paths]}


def is_below(path: str) -> bool:
    """Return whether a path, with forward slashes, stays inside its folder."""
    return not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))


def check_gallery_folder(index_folder: str | PathLike[str]) -> None:
    """Check, before hours of work, that a new gallery may be written to a folder.

    Args:
        index_folder: Empty, missing, or with an index to replace.

    Raises:
        ValueError: It holds something else, or images that were added to the index
            there, which a new build would lose.
        LockedError: Another process changes the index there.
    """
    folder = Path(index_folder)
    if _is_format_1(folder):
        raise ValueError(
            f"{shown(str(folder))} holds a gallery of format 1. Build into another "
            "folder, or remove that one."
        )
    check_destination(folder)
    added = StoredImages(folder)
    if count := len(added.names()):
        raise ValueError(
            f"{shown(str(added.folder))} holds {count} images that were added to the "
            "index, and a new build would lose them. Build into another folder, or "
            "move them to the folder of images first."
        )
    check_unlocked(folder)


def save_gallery(
    index_folder: str | PathLike[str], index: Index, gallery: Gallery
) -> None:
    """Write index and gallery; both become valid, or the previous ones stay.

    Args:
        index_folder: Folder to write to; created if missing. An index of an earlier
            build in it is replaced.
        index: Index whose ids are the paths of the images.
        gallery: Where they are.

    Raises:
        ValueError, LockedError: As `check_gallery_folder`.
        OSError: The files cannot be written; the previous gallery is unharmed.
    """
    check_gallery_folder(index_folder)
    index.notes = index.notes | {
        _NOTE: asdict(gallery) | {"format": _FORMAT, "root": str(gallery.root)}
    }
    index.save(index_folder)


def load_gallery(
    index_folder: str | PathLike[str], *, model_fingerprint: str | None = None
) -> tuple[Index, Gallery]:
    """Load a gallery with all changes since it was saved.

    Args:
        index_folder: Folder that `tfdml index build` wrote.
        model_fingerprint: Fingerprint of the model that will embed the queries. If
            given, an index of another model is refused.

    Returns:
        The index, and the gallery.

    Raises:
        FileNotFoundError: The folder holds no gallery.
        ValueError: It is damaged, of another model, or of another format.
    """
    folder = Path(index_folder)
    if _is_format_1(folder):
        raise ValueError(
            f"{shown(str(folder))} holds a gallery of format 1, this version reads "
            f"format {_FORMAT}. {_build_again()}, into another folder."
        )
    if not (folder / "manifest.json").is_file():
        raise FileNotFoundError(
            f"There is no gallery in {shown(str(index_folder))}. Build it with "
            f"`{command('serving', 'index build')}`."
        )
    index = load_index(folder, model_fingerprint=model_fingerprint)
    if _NOTE not in index.notes:
        raise FileNotFoundError(
            f"There is no gallery in {shown(str(index_folder))}, only an index, which "
            "does not tell where its images are. Build one with "
            f"`{command('serving', 'index build')}`."
        )
    try:
        gallery = _parse_gallery(index.notes[_NOTE])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The gallery in {shown(str(index_folder))} is damaged "
            f"({type(error).__name__}: {shortened(error)}). {_build_again()}."
        ) from error
    return index, gallery


def load_local_gallery(
    index_folder: str | PathLike[str],
) -> tuple[LocalIndex, Gallery]:
    """Load a gallery whose items are in its folder.

    Raises:
        FileNotFoundError, ValueError: As `load_gallery`; also if its items are in a
            cluster.
    """
    index, gallery = load_gallery(index_folder)
    if not isinstance(index, LocalIndex):
        index.close()
        raise ValueError(
            f"The index must hold its items in its folder. Received: "
            f"{shown(str(index_folder))}, whose items are in a {type(index).__name__}. "
            "Build another index with the new model."
        )
    return index, gallery


def _build_again() -> str:
    return f"Build the index again with `{command('serving', 'index build')}`"


def _is_format_1(folder: Path) -> bool:
    return (folder / _FILE_OF_FORMAT_1).is_file()


def _parse_gallery(values: dict[str, Any]) -> Gallery:
    if values["format"] != _FORMAT:
        raise ValueError(
            f"it has format {shown(values['format'])}, this version reads format "
            f"{_FORMAT}"
        )
    root = values["root"]
    if not isinstance(root, str):
        raise TypeError(f"`root` must be a string, not {shown(root)}")
    known = values["calibration"]
    return Gallery(
        root=RemoteFolder(root) if is_remote(root) else Path(root),
        model_name=str(values["model_name"]),
        model_version=int(values["model_version"]),
        calibration=None if known is None else Calibration.from_json(known),
    )
