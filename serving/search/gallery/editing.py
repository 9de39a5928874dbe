"""Changing a gallery: pictures are stored before the index tells of them.

So a search never finds an id whose picture is not there, whenever the process is
killed: a picture that is stored and not in the index is all that can remain, and the
next editor removes it.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from serving.search.gallery.stored_images import PICTURE, StoredPictures
from tfdml.index import ScannIndex

_log = logging.getLogger(__name__)

# A log that is read in a second or two at the next start, or small beside the index.
_LOG_BYTES = 64 * 2**20
_LOG_SHARE = 4

Scalar = str | int | float | bool
Attributes = Sequence[Mapping[str, Scalar]]
OnChange = Callable[[Attributes, Attributes], None]


class ExistsError(ValueError):
    """The gallery has a picture of this id already."""


@dataclass(frozen=True)
class Addition:
    """A picture that is to be added.

    Args:
        id: Its id, which must not be in the gallery.
        embedding: float32 `[D]`.
        attributes: What the index shall know of it.
        content: The encoded picture, to be stored; None where its file is below the
            root, under its id.
        suffix: Ending of the name of the stored file.
    """

    id: str
    embedding: NDArray[np.float32]
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    content: bytes | None = None
    suffix: str = ""


class GalleryEditor:
    """Adds pictures to a gallery and removes them; the only one that does.

    A context manager: at its end, `close` is called. Any number of threads may use it.
    Once the log of changes is long, or the index was built again, a thread saves it.

    Args:
        index: The index of the gallery, saved to a folder.
        on_change: Called after each change, with the attributes of the pictures that
            were added, and of those that were removed.

    Raises:
        LockedError: Somebody else changes the gallery.
        OSError: Its folder cannot be written to.
        ValueError: The index was not saved.
    """

    def __init__(
        self, index: ScannIndex, *, on_change: OnChange = lambda added, removed: None
    ) -> None:
        folder = index.stats().details["folder"]
        if folder is None:
            raise ValueError("`index` must be saved before its gallery is changed.")
        self._index = index
        self._folder = str(folder)
        self._stored = StoredPictures(folder)
        self._on_change = on_change
        # Of a picture that several ids share, the file goes with the last of them.
        self._lock = threading.Lock()
        self._saving: threading.Thread | None = None
        index.remove([])  # locks the folder, or tells that somebody else has
        self._stored.remove_unfinished()
        names = self._stored.names()
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
        """Add pictures, all or none; when this returns, they are on the disk.

        Args:
            additions: Any number of them.

        Raises:
            ExistsError: An id is in the gallery already.
            ValueError: An id, embedding or attribute is none that the index takes.
            OSError: The disk cannot be written to.
        """
        if not additions:
            return
        with self._lock:
            for addition in additions:
                if addition.id in self._index:
                    raise ExistsError(
                        f"The gallery has a picture {addition.id!r} already."
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
        """Remove pictures from the gallery, all or none.

        Stored pictures that no other id has are deleted; files below the root stay.

        Raises:
            KeyError: There is no such picture; nothing was removed.
            ValueError: An id is there twice.
        """
        with self._lock:
            known = self._index.get(ids).attributes
            self._index.remove(ids)
            self._remove_unused({str(own[PICTURE]) for own in known if PICTURE in own})
            self._on_change([], known)
            self._save_if_due()

    def close(self) -> None:
        """Bring a long log of changes into the index. The index stays open."""
        with self._lock:
            if (saving := self._saving) is not None:
                saving.join()
            if self._is_due():
                self._save()

    def _save_if_due(self) -> None:
        """Begin to save, if it is worth it; after a failure, `close` tries again."""
        if self._saving is None and self._is_due():
            self._saving = threading.Thread(target=self._save, name="gallery-save")
            try:
                self._saving.start()
            except RuntimeError as error:  # too many threads, or the program ends
                self._saving = None
                _log.warning("The index cannot be saved now: %s.", error)

    def _is_due(self) -> bool:
        """Whether a start would take long, or be of an index that searches slowly."""
        stats = self._index.stats()
        size = 4 * stats.count * stats.dimension
        is_long = stats.details["log_bytes"] > max(_LOG_BYTES, size // _LOG_SHARE)
        return is_long or bool(stats.details["save_is_due"])

    def _save(self) -> None:
        try:
            self._index.save(self._folder)
        except Exception:  # all changes are in the log
            _log.exception("The index could not be saved.")
        else:
            self._saving = None

    def _remove_of_failed(self, names: Sequence[str]) -> None:
        """Remove pictures of an addition that failed, unless it may be on the disk."""
        try:
            self._index.remove([])  # where nobody knows, it reads what is there
        except (OSError, ValueError) as error:
            _log.warning("Pictures are kept until the next start: %s", error)
        else:
            self._remove_unused(names)

    def _remove_unused(self, names: Collection[str]) -> None:
        for name in set(names) - self._used(names):
            self._remove(name)

    def _used(self, names: Collection[str]) -> set[str]:
        """Return those of some names that pictures of the index have."""
        if not names or PICTURE not in self._index.stats().attributes:
            return set()
        ids = self._index.ids_where({PICTURE: list(names)})
        return {str(own[PICTURE]) for own in self._index.get(ids).attributes}

    def _remove(self, name: str) -> None:
        try:
            self._stored.remove(name)
        except OSError as error:  # the next editor tries again
            _log.warning("The picture %s could not be removed: %s", name, error)


def _columns(
    additions: Sequence[Addition], stored: Sequence[str | None]
) -> dict[str, list[Scalar | None]]:
    """Return the attributes of additions by name."""
    names = dict.fromkeys(name for item in additions for name in item.attributes)
    columns: dict[str, list[Scalar | None]] = {
        name: [item.attributes.get(name) for item in additions] for name in names
    }
    if any(name is not None for name in stored):
        columns[PICTURE] = list(stored)
    return columns
