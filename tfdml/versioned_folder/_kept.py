"""Switch a folder to another saved index, and keep the one before for a way back.

`manifest.json` names the data of the index that is used, and those of the one that is
kept, whose own manifest is the file `DATA.json` beside them. A rename over
`manifest.json` is the only step that changes either; a kill at any other moment leaves
both, and the step can be made again. `manifest.next.json` is what will be renamed.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tfdml.files import locked, remove_unfinished, sync, written
from tfdml.messages import cut, shown
from tfdml.versioned_folder._manifest import (
    DATA,
    KEPT,
    MANIFEST,
    NEXT_MANIFEST,
    IndexFileError,
    check_file,
    read_manifest,
    write_manifest,
)
from tfdml.versioned_folder._versions import (
    log_of,
    manifest_of,
    remove_unused,
    unchanged,
)


@contextmanager
def held(folder: str | os.PathLike[str]) -> Iterator["HeldFolder"]:
    """Keep everybody else from changing the index in a folder, or switching it.

    Args:
        folder: A folder that holds an index.

    Raises:
        IndexFileError: It holds none.
        LockedError: Somebody is changing the index.
        OSError: The folder cannot be locked.
    """
    folder = Path(folder)
    read_manifest(folder)
    with locked(folder, wait=True), unchanged(folder, None):
        yield HeldFolder(folder)


def kept_manifest(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the manifest of the index that a folder keeps beside the one in use.

    Returns:
        What it is, see `read_version`; None if no other index is kept.

    Raises:
        IndexFileError: The folder holds no index, or its manifests are damaged.
    """
    folder = Path(folder)
    kept = read_manifest(folder).get(KEPT)
    if kept is None:
        return None
    if not isinstance(kept, str) or not DATA.fullmatch(kept):
        raise IndexFileError(
            f"{cut(folder / MANIFEST)} is damaged: `{KEPT}` is {shown(kept)}."
        )
    return read_manifest(folder, manifest_of(folder / kept).name)


class HeldFolder:
    """A folder of an index that only its holder may change, see `held`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def switch(self, staged: str | os.PathLike[str]) -> None:
        """Use the index of another folder, and keep the one that was used.

        One that was kept before is removed. The data of the new index are moved, so
        that a switch takes no time; what is left in `staged` is its manifest.

        Args:
            staged: A folder that holds the index, on the same file system.

        Raises:
            IndexFileError: It holds none, or files of it are missing or damaged.
            OSError: A file cannot be moved. The former index is still used.
        """
        staged = Path(staged)
        manifest = read_manifest(staged)
        # From here on, no save removes the data that come.
        self._write(self._folder / NEXT_MANIFEST, manifest)
        data = staged / manifest["data"]
        for path in (data, log_of(data)):
            if path.exists():
                path.rename(self._folder / path.name)
        self._use(manifest)

    def swap(self) -> dict[str, Any]:
        """Use the index that is kept, and keep the one that was used.

        Returns:
            The manifest of the one that is used now.

        Raises:
            IndexFileError: None is kept, or its files are missing or damaged.
        """
        manifest = kept_manifest(self._folder)
        if manifest is None:
            raise IndexFileError(f"{cut(self._folder)} keeps no other index.")
        self._use(manifest)
        return manifest

    def forget(self) -> None:
        """Remove the index that is kept, if any."""
        manifest = read_manifest(self._folder)
        if manifest.pop(KEPT, None) is not None:
            self._write(self._folder / NEXT_MANIFEST, manifest)
            self._rename()
        self._clean()

    def _use(self, manifest: Mapping[str, Any]) -> None:
        """Use an index whose data are in the folder, and keep the one that is used."""
        data = self._folder / manifest["data"]
        for name, measured in manifest["files"].items():
            check_file(data / name, measured)
        if not log_of(data).exists():
            raise IndexFileError(
                f"The index is damaged: {cut(log_of(data))} is missing."
            )
        used = read_manifest(self._folder)
        used.pop(KEPT, None)
        self._write(manifest_of(self._folder / used["data"]), used)
        new = {**manifest, KEPT: used["data"]}
        self._write(self._folder / NEXT_MANIFEST, new)
        self._rename()
        self._clean()

    def _write(self, path: Path, manifest: Mapping[str, Any]) -> None:
        with written(path) as new:
            write_manifest(new, dict(manifest))

    def _rename(self) -> None:
        sync(self._folder)
        (self._folder / NEXT_MANIFEST).replace(self._folder / MANIFEST)
        sync(self._folder)

    def _clean(self) -> None:
        with suppress(OSError, IndexFileError):
            used = read_manifest(self._folder)["data"]
            for path in (self._folder / NEXT_MANIFEST, manifest_of(Path(used))):
                remove_unfinished(self._folder, path.name)
        remove_unused(self._folder)
