"""Choose the images of a gallery: all below a folder, or those of a list."""

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path, PurePosixPath

from tfdml.images import find_images
from tfdml.messages import shown
from tfdml.text_files import lines_of, read_text

from ...storage.remote_folder import RemoteFolder
from ...storage.remote_image import find_remote_images
from .gallery import is_below


def choose_images(
    images_folder: Path | RemoteFolder,
    only: str | PathLike[str] | None,
    *,
    skip_unreadable: bool,
    outside_links: bool,
) -> tuple[list[str], tuple[str, ...]]:
    """List the images to embed, and say what is left out.

    Args:
        images_folder: Folder of the images, here or in the cloud, where there are no
            links.
        only: A list of images below it, see `read_image_list`; None for all.
        skip_unreadable: Whether to go on where a file cannot be read.
        outside_links: Whether to take images that links lead to, outside of the
            folder; those of a list are always taken.

    Returns:
        The paths, and a note for each kind of what is left out or odd.

    Raises:
        NotADirectoryError, OSError, ValueError: As `tfdml.images.find_images` and
            `read_image_list`.
    """
    if only is not None:
        paths = read_image_list(only, images_folder, skip_unreadable=skip_unreadable)
        return paths, ()
    found = (
        find_images(
            images_folder, outside=outside_links, skip_unreadable=skip_unreadable
        )
        if isinstance(images_folder, Path)
        else find_remote_images(images_folder)
    )
    notes = found.notes()
    if found.outside:
        notes.append("Leave them out with --no-outside-links.")
    if splits := found.split_folders:
        notes.append(
            f"The classes are now {', '.join(splits)}, which are the names of splits. "
            f"If the folders in them are the classes, index one of them, such as "
            f"{images_folder}/{splits[0]}."
        )
    elif found.nested:
        notes.append(found.nested_note())
    return list(found.paths), tuple(notes)


def read_image_list(
    only: str | PathLike[str],
    images_folder: str | PathLike[str] | RemoteFolder,
    *,
    skip_unreadable: bool = False,
) -> list[str]:
    """Read a list of images from a text file, in the order of its lines.

    Args:
        only: Text file with one path below `images_folder` per line, as
            `tfdml.text_files` reads it. Blank lines are skipped, and lines that begin
            with # unless there is such a file; so are spaces around a path.
        images_folder: Folder that the paths are below.
        skip_unreadable: Whether to list files that are not there, for a reader that
            skips them and says so.

    Returns:
        The paths, with forward slashes.

    Raises:
        ValueError: A line leads out of the folder, names no file or is repeated, or
            there is no line.
        OSError: The list cannot be read.
    """
    is_file: Callable[[str], bool]
    if isinstance(images_folder, RemoteFolder):
        is_file = images_folder.files().__contains__
    else:
        root = Path(images_folder)

        def is_file(path: str) -> bool:
            return os.path.isfile(root / path)

    paths: dict[str, int] = {}
    for number, line in lines_of(read_text(only)):
        path, is_there = _path_of_line(line, is_file)
        if path.startswith("#") and not is_there:
            continue
        where = f"{os.fspath(only)}, line {number}: {shown(path)}"
        if not is_below(path):
            raise ValueError(f"{where} must be a path below the image folder.")
        if path in paths:
            raise ValueError(f"{where} is also in line {paths[path]}.")
        if not (is_there or skip_unreadable):
            hint = " Separate folders by /, not by \\." if "\\" in path else ""
            raise ValueError(
                f"{where} is not a file in {shown(str(images_folder))}.{hint}"
            )
        paths[path] = number
    if not paths:
        raise ValueError(f"{os.fspath(only)} lists no image.")
    return list(paths)


def _path_of_line(line: str, is_file: Callable[[str], bool]) -> tuple[str, bool]:
    """Return the path in a line and whether the file is there."""
    path = ""
    for text in (line, line.strip()):  # a name may end in a space
        path = PurePosixPath(text).as_posix()
        if is_below(path) and is_file(path):
            return path, True
    return path, False
