"""Pictures that were added to a gallery: files in its folder, named by content."""

import contextlib
import hashlib
import os
import re
from os import PathLike
from pathlib import Path

from tfdml.files import make_folder, remove_unfinished, sync, written

PICTURE = "picture"
"""Name of the attribute that holds the name of a stored picture."""

_FOLDER = "pictures"
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")
# As versions before 0.2 named it.
_UNFINISHED = re.compile(rf"{_NAME.pattern}\.[0-9a-f]{{16}}\.new")


class StoredPictures:
    """The pictures in the folder of an index. One process at a time may change them.

    Args:
        index_folder: Folder of the index; the pictures go to `pictures` in it, which
            is made when the first one comes.
    """

    def __init__(self, index_folder: str | PathLike[str]) -> None:
        self.folder = Path(index_folder) / _FOLDER

    def put(self, content: bytes, suffix: str) -> str:
        """Store a picture; when this returns, it is on the disk.

        Args:
            content: The encoded picture, which is stored as it is.
            suffix: Ending of its name, 1 to 8 lower-case letters and digits.

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
        """Return the file of a picture.

        Raises:
            ValueError: `name` is none that `put` returns.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(
                "`name` must be the SHA-256 of a picture and an ending. "
                f"Received: {name!r}."
            )
        return self.folder / name

    def remove(self, name: str) -> None:
        """Remove a picture; nothing happens where it is gone already."""
        self.path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """List the names of all pictures, sorted."""
        return sorted(name for name in self._files() if _NAME.fullmatch(name))

    def remove_unfinished(self) -> None:
        """Remove what was being written when a process was killed."""
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
