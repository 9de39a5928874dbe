"""Implement what all indexes whose items a server keeps have in common."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfdml.files import short_names
from tfdml.index._interface import Index
from tfdml.versioned_folder import check_notes, write_version


class ConnectedIndex(Index):
    """Items on a server, and a folder that says where they are."""

    _folder: Path | None = None

    @abstractmethod
    def _place(self) -> Mapping[str, str]:
        """Return where the items are, without any password."""

    @abstractmethod
    def drop(self) -> None:
        """Delete all items from the server, and close the index.

        A folder that it was saved to leads nowhere from then on.

        Raises:
            ConnectionError: The server does not answer, or does not allow it.
        """

    @short_names()
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write where the items are, so that `load` can connect to them again.

        The items stay on the server, which writes every change to its own disks: this
        is not a backup, and a later `load` finds them as they are then. The folder may
        be moved and copied. It holds the address without password or token. A path
        is written as an absolute path.

        Raises:
            IndexFileError: The folder holds something other than an index.
            OSError: The file cannot be written.
            TypeError: `notes` is not a dictionary of JSON values.
            ValueError: `notes` holds a number that is not finite.
        """
        check_notes(self.notes)
        description = {
            "class": type(self).__name__,
            **self._place(),
            "dimension": self._dimension,
            "metric": self._metric,
            "model_fingerprint": self._model_fingerprint,
            "notes": self.notes,
        }
        write_version(folder, description, lambda data: None)
        self._folder = Path(folder).absolute()

    def _opened(self, manifest: Mapping[str, Any], data: Path) -> None:
        """Take over what a saved folder holds."""
        self.notes = dict(manifest.get("notes", {}))
        self._folder = data.parent.absolute()

    def _folder_details(self) -> dict[str, Any]:
        folder = self._folder
        return {"folder": None if folder is None else str(folder)}
