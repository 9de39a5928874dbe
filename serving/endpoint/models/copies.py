"""Copy the versions of a model from the cloud to this machine, each as a whole.

A version is copied when its files have not changed since the look before, and taken
over when they have not changed while they were copied, and belong together. Until
then, and while the cloud cannot be reached, what was copied before stays.
"""

import hashlib
import json
import logging
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tfdml.messages import shown

from ...storage.remote_folder import RemoteFile, RemoteFolder
from .config import VersionPolicy
from .saved_model import is_version

_GRAPH = "saved_model.pb"
_INDEX = "variables/variables.index"
_SHARD = re.compile(r"variables/variables\.data-\d{5}-of-(\d{5})")
_NEW, _OLD = "new", "old"

_log = logging.getLogger(__name__)

Files = Mapping[str, RemoteFile]


class ModelCopies:
    """The copies of one base path in the cloud.

    `look` may take long; `take_over` moves what it has copied to its place, when nobody
    looks at the versions there. Each may be called from any thread.

    Args:
        remote: The base path, with one numbered folder per version.
        folder: Folder of the copies of this base path; created if missing. One process
            at a time uses it.
        check: Looks at the copy of a version; raises ValueError if its files do not
            belong together.

    Attributes:
        folder: Holds the copy of each version, under its number.
    """

    def __init__(
        self, remote: RemoteFolder, folder: Path, check: Callable[[Path], None]
    ) -> None:
        self.folder = folder
        self._remote = remote
        self._check = check
        self._stopped = threading.Event()
        self._looking = threading.Lock()
        self._placing = threading.Lock()
        self._seen: dict[int, str] = {}
        self._unfit: dict[int, str] = {}
        self._copied: dict[int, str] = {}
        self._gone: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)
        for name in (_NEW, _OLD):
            shutil.rmtree(folder / name, ignore_errors=True)

    def stop(self) -> None:
        """Begin no further file, from now on."""
        self._stopped.set()

    def versions(self) -> set[int]:
        """Return the versions that are in their place."""
        names = (entry.name for entry in self.folder.iterdir() if entry.is_dir())
        return {int(name) for name in names if is_version(name)}

    def look(self, policy: VersionPolicy, *, at_once: bool = False) -> None:
        """Compare the copies with the cloud, and copy what is missing.

        Args:
            policy: Which versions are wanted.
            at_once: Also copy versions that are seen for the first time.

        Raises:
            OSError: The cloud, or the disk of the copies, refuses; nothing is lost.
        """
        with self._looking:
            found = self._found()
            stamps = {version: _stamp(files) for version, files in found.items()}
            before, self._seen = self._seen, stamps

            def is_ready(version: int) -> bool:
                stamp = stamps[version]
                if self._is_here(version, stamp):
                    return True
                if self._unfit.get(version) == stamp:
                    return False
                if not at_once and before.get(version) != stamp:
                    return False
                return self._copy(version, found[version], stamp)

            policy.wanted(found.keys(), is_ready)
            with self._placing:
                # An empty bucket is an accident, not a wish.
                self._gone = self.versions() - found.keys() if found else set()

    def take_over(self) -> None:
        """Put copied versions into their place, and remove those that are gone.

        A version is moved as a whole, and one that it replaces is moved away before.
        """
        with self._placing:
            for version, stamp in self._copied.items():
                self._remove(version)
                place = self.folder / str(version)
                (self.folder / _NEW / str(version)).rename(place)
                # Last: without it, the copy counts as none.
                self._stamp_file(version).write_text(stamp, encoding="utf-8")
                _log.info("Version %d of %s was copied.", version, self._remote)
            self._copied.clear()
            for version in self._gone:
                self._remove(version)
            self._gone.clear()

    def _found(self) -> dict[int, dict[str, RemoteFile]]:
        versions: dict[int, dict[str, RemoteFile]] = {}
        for path, file in self._remote.files().items():
            name, _, below = path.partition("/")
            # Names such as "07" would be a second "7".
            if below and is_version(name) and name == str(int(name)):
                versions.setdefault(int(name), {})[below] = file
        return versions

    def _copy(self, version: int, files: Files, stamp: str) -> bool:
        """Copy a version to a place of its own; return whether it can be taken over."""
        if reason := _missing(files):
            return self._leave(version, stamp, reason)
        place = self.folder / _NEW / str(version)
        with self._placing:
            self._copied.pop(version, None)
        shutil.rmtree(place, ignore_errors=True)
        source = self._remote / str(version)
        for name in files:
            if self._stopped.is_set():
                return False
            target = place / name
            if not target.resolve().is_relative_to(place.resolve()):
                return self._leave(version, stamp, f"it has a file {shown(name)}.")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.copy(name, target)
            if target.stat().st_size != files[name].size:
                return False  # it was replaced meanwhile
        if _stamp(source.files()) != stamp:
            return False
        try:
            self._check(place)
        except ValueError as error:
            return self._leave(version, stamp, str(error))
        with self._placing:
            self._copied[version] = stamp
        return True

    def _leave(self, version: int, stamp: str, reason: str) -> bool:
        """Leave a version alone until its files change."""
        self._unfit[version] = stamp
        _log.warning(
            "Version %d of %s is not taken over until its files change: %s",
            *(version, self._remote, reason),
        )
        return False

    def _is_here(self, version: int, stamp: str) -> bool:
        with self._placing:
            if version in self._copied:
                return self._copied[version] == stamp
            if not (self.folder / str(version)).is_dir():
                return False
            try:
                return self._stamp_file(version).read_text("utf-8") == stamp
            except FileNotFoundError:
                return False

    def _remove(self, version: int) -> None:
        self._stamp_file(version).unlink(missing_ok=True)
        place, old = self.folder / str(version), self.folder / _OLD
        if place.is_dir():
            place.rename(old)
            shutil.rmtree(old, ignore_errors=True)

    def _stamp_file(self, version: int) -> Path:
        return self.folder / f"{version}.stamp"


def _stamp(files: Files) -> str:
    listed = sorted((name, file.size, file.mark) for name, file in files.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _missing(files: Files) -> str:
    """Return what a version lacks by the names of its files; nothing if it has all.

    A file is in a listing when all of it is there, and large ones come late.
    """
    for name in (_GRAPH, _INDEX):
        if name not in files:
            return f"it has no {name}."
    shards = [match for name in files if (match := _SHARD.fullmatch(name))]
    count = int(shards[0][1]) if shards else 1
    if len(shards) < count:
        return f"it has {len(shards)} of {count} files of variables."
    return ""
