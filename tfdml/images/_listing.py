"""List the images below a folder, and name what is not among them."""

import os
from collections import Counter
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path, PurePosixPath

from tfdml.files import short_names
from tfdml.images._formats import NOT_READ, is_image_name, why_not_taken
from tfdml.messages import cut, shown

_NO_FILE = "it is not a regular file"
_NOWHERE = "the link leads nowhere"
_TWICE = "the link leads to a folder that is listed already"
_NOT_UTF8 = "the name is not UTF-8"
_OUTSIDE = "a link leads outside of the folder"

# Folders of other tools above the folders of classes.
_SPLITS = frozenset((
    "train", "training", "trn", "val", "valid", "validation", "dev", "test", "testing",
    "tst", "eval", "evaluation", "query", "gallery", "holdout",
))  # fmt: skip


@dataclass(frozen=True)
class FoundImages:
    """The images below a folder, and files that look like images but are left out.

    Args:
        paths: Paths below the folder, with forward slashes, sorted.
        left_out: Why a file or link is not among them, by its path.
        outside: Those of `paths` that links lead to, outside of the folder.
    """

    paths: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    outside: tuple[str, ...] = ()

    @property
    def split_folders(self) -> tuple[str, ...]:
        """Return the first folders if all are named as splits, such as `train`.

        Then they are no classes; the folders in them are.
        """
        first = {path.partition("/")[0] if "/" in path else "" for path in self.paths}
        return tuple(sorted(first)) if {f.lower() for f in first} <= _SPLITS else ()

    @property
    def nested(self) -> tuple[str, ...]:
        """Return the images that are in a folder in a first folder."""
        return tuple(path for path in self.paths if path.count("/") > 1)

    def notes(self) -> list[str]:
        """Return what was left out or comes from outside, a line for each kind."""
        lines = []
        for reason, count in Counter(self.left_out.values()).items():
            paths = [path for path, own in self.left_out.items() if own == reason]
            kinds = f" ({_endings(paths)})" if reason == NOT_READ else ""
            files = "file" if count == 1 else "files"
            lines.append(
                f"Left out, as {reason}: {count} {files}{kinds}, such as "
                f"{shown(paths[0])}."
            )
        if self.outside:
            lines.append(
                f"Images outside the folder, behind links: {len(self.outside)} of "
                f"{len(self.paths)}, such as {shown(self.outside[0])}."
            )
        return lines

    def nested_note(self) -> str:
        """Return a line on the images in folders inside of the first ones."""
        first = self.nested[0]
        return (
            f"Images in folders inside others: {len(self.nested)} of "
            f"{len(self.paths)}, such as {shown(first)}. The first folder is the "
            f"class, here {shown(first.partition('/')[0])}; if the folders inside are "
            "the classes, move them up or name one of the first folders."
        )


@short_names()
def list_images(images_folder: str | PathLike[str]) -> list[str]:
    """List the images below a folder, at any depth, sorted.

    An image is a file whose name ends as an image's does. Hidden files and folders
    (their name begins with a dot) are left out; links are followed. `find_images` also
    tells what else is there.

    Args:
        images_folder: Folder with a folder for each class, or with images only.

    Returns:
        Paths below the folder, with forward slashes.

    Raises:
        NotADirectoryError: There is no such folder.
        OSError: A folder in it cannot be read.
        ValueError: It holds no image, or a file name is not UTF-8.
    """
    return list(find_images(images_folder).paths)


@short_names()
def find_images(
    images_folder: str | PathLike[str],
    *,
    outside: bool = True,
    skip_unreadable: bool = False,
) -> FoundImages:
    """List the images below a folder as `list_images` does, and what is left out.

    Left out are images of formats that are not read (HEIC without pillow-heif, RAW,
    SVG), images without the name of one, pipes and devices, links that lead nowhere or
    to a folder that is listed already. A link to an image that leads nowhere is listed:
    to read it is an error.

    Args:
        images_folder: Folder with a folder for each class, or with images only.
        outside: Whether images are taken that links lead to, outside of the folder.
        skip_unreadable: Whether a file is left out whose name is not UTF-8. By default
            it is an error.

    Returns:
        The images, at least one, and the rest.

    Raises:
        NotADirectoryError, OSError, ValueError: As `list_images`.
    """
    root = Path(images_folder)
    if not root.is_dir():
        raise NotADirectoryError(
            "`images_folder` must be a folder with images. "
            f"Received: images_folder={shown(str(images_folder))}."
        )
    walk = _Walk(root)
    found, left_out = walk.images(), walk.left_out
    if not outside:
        left_out |= dict.fromkeys(walk.outside, _OUTSIDE)
        found = [path for path in found if path not in walk.outside]
    wrong = [path for path in (*found, *left_out) if not _is_utf8(path)]
    if wrong and not skip_unreadable:
        raise ValueError(
            f"The file name {shown(wrong[0])} is not valid UTF-8; rename the file, or "
            f"skip such files as unreadable ({len(wrong)} in all)."
        )
    left_out |= dict.fromkeys(wrong, _NOT_UTF8)
    paths = tuple(sorted(set(found).difference(wrong)))
    listing = FoundImages(
        paths,
        dict(sorted(left_out.items())),
        tuple(path for path in paths if path in walk.outside) if outside else (),
    )
    if not paths:
        raise ValueError(
            f"There is no image in the folder {shown(str(images_folder))}: no file "
            "whose name ends in .jpg, .png, .webp or another ending that is read. "
            + cut(" ".join(listing.notes()), 250)
        )
    return listing


class _Walk:
    """A walk through a folder that enters each folder once, its own folders first.

    Attributes:
        left_out: Why a file or link was left out, by its path.
        outside: The images that links lead to, outside of the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real = os.path.realpath(root)
        self._links: dict[str, str] = {}  # where each link to a folder leads
        self.left_out: dict[str, str] = {}
        self.outside: set[str] = set()

    def images(self) -> list[str]:
        """List the images; the other attributes hold the rest."""
        entered: set[str] = set()
        waiting = [("", self._real)]
        found = []
        while waiting or self._links:
            if not waiting:
                links = sorted(self._links.items(), reverse=True)
                waiting += [(f"{link}/", real) for link, real in links]
                self._links.clear()
            below, real = waiting.pop()
            if real in entered:
                self.left_out[below.rstrip("/")] = _TWICE
                continue
            entered.add(real)
            with os.scandir(self._root / below) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    path = f"{below}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((f"{path}/", os.path.join(real, entry.name)))
                    elif self._is_image(entry, path, real):
                        found.append(path)
        return found

    def _is_image(self, entry: os.DirEntry[str], path: str, folder: str) -> bool:
        """Return whether an entry is an image; note why not, and links to folders."""
        is_named = is_image_name(entry.name)
        target, is_file = os.path.join(folder, entry.name), None
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if os.path.isdir(target):
                self._links[path] = target
                return False
            if not os.path.exists(entry.path):
                if not is_named:
                    self.left_out[path] = _NOWHERE
                return is_named
            is_file = os.path.isfile(target)
        # Of a file that is no link, the folder says it: there is no need to ask again.
        if not (entry.is_file() if is_file is None else is_file):
            if is_named:
                self.left_out[path] = _NO_FILE
            return False
        if not is_named:
            if reason := why_not_taken(entry.name, entry.path):
                self.left_out[path] = reason
            return False
        if not target.startswith(os.path.join(self._real, "")):
            self.outside.add(path)
        return True


def _endings(paths: list[str]) -> str:
    counts = Counter(PurePosixPath(path).suffix.lower() for path in paths)
    shown = [f"{count} {ending[:12]}" for ending, count in counts.most_common(4)]
    return ", ".join(shown + ["..."] * (len(counts) > 4))


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
