"""Check that the images that were added to a gallery are intact."""

from os import PathLike

from tfdml.files import sha256_of

from .gallery import load_gallery
from .stored_images import STORED_IMAGE, StoredImages

_BLOCK = 4096  # images whose names are read at once


def image_problems(index_folder: str | PathLike[str]) -> list[str]:
    """Check the images in the folder of an index against their names.

    An image is named by the SHA-256 of its content. Images below the folder that was
    indexed are not checked: they may have been moved.

    Args:
        index_folder: Folder of a gallery.

    Returns:
        A sentence for each image that is missing or damaged.

    Raises:
        FileNotFoundError: The folder holds no gallery.
        ValueError: The index is damaged.
    """
    index, _ = load_gallery(index_folder)
    stored = StoredImages(index_folder)
    names: dict[str, str] = {}
    with index:
        if STORED_IMAGE not in index.stats().attributes:
            return []
        ids = index.ids
        for start in range(0, len(ids), _BLOCK):
            items = index.get(ids[start : start + _BLOCK])
            for id_, own in zip(items.ids.tolist(), items.attributes, strict=True):
                if STORED_IMAGE in own:
                    names[str(own[STORED_IMAGE])] = id_
    problems = [_problem(stored, name, id_) for name, id_ in names.items()]
    return [problem for problem in problems if problem is not None]


def _problem(stored: StoredImages, name: str, id_: str) -> str | None:
    try:
        digest = sha256_of(stored.path(name))
    except FileNotFoundError:
        return f"The image of {id_!r} is missing: {stored.folder / name}."
    except (OSError, ValueError) as error:
        return f"The image of {id_!r} cannot be read: {error}"
    if digest != name.partition(".")[0]:
        return f"The image of {id_!r} is damaged: {stored.folder / name}."
    return None
