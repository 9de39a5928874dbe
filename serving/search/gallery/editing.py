"""Add images to a gallery and remove them: files first, then the index.

So a search never finds an id without its image, whenever the process is killed: all
that can remain is an image that is stored and not in the index, and the next editor
removes it.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tfdml.files import Lock
from tfdml.index import Index, LocalIndex
from tfdml.messages import shown
from tfdml.versioned_folder import kept_manifest, lock_log, saved_data

from .stored_images import STORED_IMAGE, StoredImages

_log = logging.getLogger(__name__)

_LOG_SHARE = 4  # a log below a quarter of the index is small beside it

Scalar = str | int | float | bool
Attributes = Sequence[Mapping[str, Scalar]]
OnChange = Callable[[Attributes, Attributes], None]


class ExistsError(ValueError):
    """The gallery has an image with this id already."""


class PausedError(OSError):
    """The gallery is being upgraded, and takes changes again in a moment."""


@dataclass(frozen=True)
class Addition:
    """An image to add.

    Args:
        id: Its id, which must not be in the gallery.
        embedding: float32 `[D]`.
        attributes: Its attributes for the index.
        content: The encoded image, to be stored; None if its file is below the
            root, under its id.
        suffix: Suffix of the stored file.
    """

    id: str
    embedding: NDArray[np.float32]
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    content: bytes | None = None
    suffix: str = ""


class GalleryEditor:
    """Add images to a gallery and remove them; one editor at a time.

    A context manager: at its end, `close` is called. Any number of threads may use it.
    When the log of changes has grown long, or the index was rebuilt, a thread saves it.

    Args:
        index: The index of the gallery, saved to a folder.
        on_change: Called after each change with the attributes of the images added and
            removed.
        log_bytes: Length from which the log of changes is long, if it is also large
            beside the index. By default, it is read in a second or two at the start.

    Raises:
        LockedError: Another process changes the gallery.
        OSError: Its folder cannot be written to.
        ValueError: The index was not saved.
    """

    def __init__(
        self,
        index: Index,
        *,
        on_change: OnChange = lambda added, removed: None,
        log_bytes: int = 64 * 2**20,
    ) -> None:
        folder = index.stats().details["folder"]
        if folder is None:
            raise ValueError("`index` must be saved before its gallery is changed.")
        self._index = index
        self._folder = str(folder)
        self._stored = StoredImages(folder)
        self._on_change = on_change
        self._log_bytes = log_bytes
        # The file of an image that several ids share is removed with the last of them.
        self._lock = threading.Lock()
        self._saving: threading.Thread | None = None
        self._is_paused = False
        self._held: Lock | None = None
        self._hold()
        self._stored.remove_unfinished()
        # Images that only the index kept beside this one has are there for a way back.
        names = [] if kept_manifest(folder) else self._stored.names()
        used = self._used(names)
        for name in names:
            if name not in used:
                self._remove(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, additions: Sequence[Addition]) -> None:
        """Add images, all or none; when this returns, they are on the disk.

        Args:
            additions: Any number of images.

        Raises:
            ExistsError: An id is in the gallery already.
            ValueError: The index refuses an id, embedding or attribute.
            OSError: The disk cannot be written to.
            PausedError: `pause` was called.
        """
        if not additions:
            return
        with self._lock:
            self._check_runs()
            for addition in additions:
                if addition.id in self._index:
                    raise ExistsError(
                        f"The gallery already has an image {shown(addition.id)}."
                    )
            stored: list[str | None] = []
            try:
                for addition in additions:
                    content = addition.content
                    stored.append(
                        None
                        if content is None
                        else self._stored.put(content, addition.suffix)
                    )
                self._index.add(
                    np.stack([addition.embedding for addition in additions]),
                    [addition.id for addition in additions],
                    _columns(additions, stored),
                )
            except BaseException:
                self._remove_of_failed([name for name in stored if name is not None])
                raise
            self._on_change([addition.attributes for addition in additions], [])
            self._save_if_due()

    def remove(self, ids: Sequence[str]) -> None:
        """Remove images from the gallery, all or none.

        Stored images that no other id shares are deleted; files below the root stay.

        Raises:
            KeyError: There is no such image; nothing was removed.
            ValueError: An id is repeated.
            PausedError: `pause` was called.
        """
        with self._lock:
            self._check_runs()
            known = self._index.get(ids).attributes
            self._index.remove(ids)
            self._remove_unused(
                {str(own[STORED_IMAGE]) for own in known if STORED_IMAGE in own}
            )
            self._on_change([], known)
            self._save_if_due()

    def pause(self) -> None:
        """Let another process change the gallery, until `resume`."""
        with self._lock:
            if self._is_paused:
                return
            self._is_paused = True
            if (saving := self._saving) is not None:
                saving.join()
            self._release()

    def resume(self) -> None:
        """Change the gallery again.

        Raises:
            LockedError: Another process still changes it.
            IndexFileError: Another index is in its place.
        """
        with self._lock:
            if self._is_paused:
                self._hold()
                self._is_paused = False

    def close(self) -> None:
        """Save a long log of changes into the index, which stays open."""
        with self._lock:
            if self._is_paused:
                return
            if (saving := self._saving) is not None:
                saving.join()
            if self._is_due():
                self._save()
            if not isinstance(self._index, LocalIndex):
                self._release()

    def _hold(self) -> None:
        """Keep other processes from changing the gallery, or raise LockedError."""
        if isinstance(self._index, LocalIndex):
            self._index.remove([])
        else:  # its items are elsewhere; the images that are added are here
            self._held = lock_log(saved_data(self._folder))

    def _release(self) -> None:
        """Let other processes change the gallery."""
        if isinstance(self._index, LocalIndex):
            # Searches go on, and the next change locks the folder again.
            self._index.close()
        elif self._held is not None:
            self._held.close()

    def _check_runs(self) -> None:
        if self._is_paused:
            raise PausedError("The gallery is being upgraded: try again in a moment.")

    def _save_if_due(self) -> None:
        """Begin to save if that is due; after a failure, `close` tries again."""
        if self._saving is None and self._is_due():
            self._saving = threading.Thread(target=self._save, name="gallery-save")
            try:
                self._saving.start()
            except RuntimeError as error:  # too many threads, or the program ends
                self._saving = None
                _log.warning("The index cannot be saved now: %s.", error)

    def _is_due(self) -> bool:
        """Return whether the next start would be slow, or its searches."""
        if not isinstance(self._index, LocalIndex):  # nothing is saved here
            return False
        stats = self._index.stats()
        size = 4 * stats.count * stats.dimension
        is_long = stats.details["log_bytes"] > max(self._log_bytes, size // _LOG_SHARE)
        return is_long or bool(stats.details["save_is_due"])

    def _save(self) -> None:
        try:
            self._index.save(self._folder)
        except Exception:  # all changes are in the log
            _log.exception("The index could not be saved.")
        else:
            self._saving = None

    def _remove_of_failed(self, names: Sequence[str]) -> None:
        """Remove the files of a failed addition, unless it may be on the disk."""
        try:
            self._index.remove([])  # reads the disk again if its state is unknown
        except (OSError, ValueError) as error:
            _log.warning("Images are kept until the next start: %s", error)
        else:
            self._remove_unused(names)

    def _remove_unused(self, names: Collection[str]) -> None:
        for name in set(names) - self._used(names):
            self._remove(name)

    def _used(self, names: Collection[str]) -> set[str]:
        """Return those of the names that images of the index have."""
        if not names or STORED_IMAGE not in self._index.stats().attributes:
            return set()
        ids = self._index.ids_where({STORED_IMAGE: list(names)})
        return {str(own[STORED_IMAGE]) for own in self._index.get(ids).attributes}

    def _remove(self, name: str) -> None:
        try:
            self._stored.remove(name)
        except OSError as error:  # the next editor tries again
            _log.warning("The image %s could not be removed: %s", name, error)


def _columns(
    additions: Sequence[Addition], stored: Sequence[str | None]
) -> dict[str, list[Scalar | None]]:
    """Return the attributes of additions by name."""
    names = dict.fromkeys(name for item in additions for name in item.attributes)
    columns: dict[str, list[Scalar | None]] = {
        name: [item.attributes.get(name) for item in additions] for name in names
    }
    if any(name is not None for name in stored):
        columns[STORED_IMAGE] = list(stored)
    return columns
