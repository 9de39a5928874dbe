"""Looking through a gallery: whether the pictures that were added to it are there."""

import hashlib
from os import PathLike

from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.stored_images import PICTURE, StoredPictures

_BLOCK = 4096  # pictures whose names are read at one time


def picture_problems(index_folder: str | PathLike[str]) -> list[str]:
    """Check the pictures in the folder of an index against their names.

    A picture is named by the SHA-256 of its content. Those below the folder that was
    indexed are not looked at: they may have been moved.

    Args:
        index_folder: Folder of a gallery.

    Returns:
        A sentence for each picture that is missing or damaged.

    Raises:
        FileNotFoundError: The folder holds no gallery.
        ValueError: The index is damaged.
    """
    index, _ = load_gallery(index_folder)
    stored = StoredPictures(index_folder)
    names: dict[str, str] = {}
    with index:
        if PICTURE not in index.stats().attributes:
            return []
        ids = index.ids
        for start in range(0, len(ids), _BLOCK):
            items = index.get(ids[start : start + _BLOCK])
            for id_, own in zip(items.ids.tolist(), items.attributes, strict=True):
                if PICTURE in own:
                    names[str(own[PICTURE])] = id_
    problems = [_problem(stored, name, id_) for name, id_ in names.items()]
    return [problem for problem in problems if problem is not None]


def _problem(stored: StoredPictures, name: str, id_: str) -> str | None:
    try:
        with stored.path(name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return f"The picture of {id_!r} is missing: {stored.folder / name}."
    except (OSError, ValueError) as error:
        return f"The picture of {id_!r} cannot be read: {error}"
    if digest != name.partition(".")[0]:
        return f"The picture of {id_!r} is damaged: {stored.folder / name}."
    return None
