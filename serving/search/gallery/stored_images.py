"""Store the images that are added to a gallery: files named by their content."""

import contextlib
import hashlib
import os
import re
from os import PathLike
from pathlib import Path

from tfdml.files import make_folder, remove_unfinished, sync, written
from tfdml.messages import shown

STORED_IMAGE = "picture"
"""Name of the attribute that holds the name of a stored image; saved indexes use it."""

_FOLDER = "pictures"
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")
# As earlier versions named it.
_UNFINISHED = re.compile(rf"{_NAME.pattern}\.[0-9a-f]{{16}}\.new")


class StoredImages:
    """The images in the folder of an index. One process at a time may change them.

    Args:
        index_folder: Folder of the index; the images go to `pictures` in it, which is
            created with the first one.
    """

    def __init__(self, index_folder: str | PathLike[str]) -> None:
        self.folder = Path(index_folder) / _FOLDER

    def put(self, content: bytes, suffix: str) -> str:
        """Store an image; when this returns, it is on the disk.

        Args:
            content: The encoded image, which is stored unchanged.
            suffix: Suffix of its name, 1 to 8 lower-case letters and digits.

        Returns:
            Its name. The same content has the same name, and one file.

        Raises:
            OSError: It cannot be written.
        """
        name = f"{hashlib.sha256(content).hexdigest()}.{suffix}"
        file = self.path(name)
        make_folder(self.folder)
        if file.exists():
            sync(self.folder)  # another request may have written it a moment ago
        else:
            with written(file) as new:
                new.write_bytes(content)
        return name

    def path(self, name: str) -> Path:
        """Return the file of an image.

        Raises:
            ValueError: `name` is not one that `put` returns.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(
                "`name` must be the SHA-256 of an image and a suffix. "
                f"Received: {shown(name)}."
            )
        return self.folder / name

    def remove(self, name: str) -> None:
        """Remove an image, unless it is gone already."""
        self.path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """List the names of all images, sorted."""
        return sorted(name for name in self._files() if _NAME.fullmatch(name))

    def remove_unfinished(self) -> None:
        """Remove files that were being written when a process was killed."""
        remove_unfinished(self.folder)
        for name in self._files():
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).unlink()

    def _files(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []
