"""List the images of a gallery, and the values of their attributes."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from tfdml.index import Index, Where

from .gallery import CLASS
from .items import Attributes, Item
from .stored_images import STORED_IMAGE

_BLOCK = 4096  # items whose attributes are read at once


class Listing:
    """Cache what takes long to read from the index of a large gallery.

    Any number of threads may use it.

    Args:
        index: The index. Whoever changes it calls `changed`.
        items: Returns images by their ids.

    Attributes:
        changes: The number of calls of `changed`.
    """

    def __init__(
        self, index: Index, items: Callable[[Sequence[str]], list[Item]]
    ) -> None:
        self.changes = 0
        self._index = index
        self._items = items
        self._lock = threading.Lock()
        self._ids: NDArray[Any] | None = None
        self._values: dict[str, Counter[str]] | None = None

    def ids(self, where: Where | None = None) -> NDArray[Any]:
        """Return the ids of images in the order of the gallery; do not modify.

        Args:
            where: A filter, see `tfdml.index`. Default: none.

        Raises:
            ValueError: The index has no such attribute.
        """
        if where:
            return self._index.ids_where(where)
        with self._lock:
            if self._ids is None:
                # As objects, of which one long id does not make all others as long.
                self._ids = self._index.ids.astype(object)
            return self._ids

    def classes(self) -> int:
        """Return the number of classes."""
        with self._lock:
            return len(self._counted().get(CLASS, ()))

    def values(self, most: int) -> dict[str, dict[str, int]]:
        """Count the images with each value of an attribute.

        Args:
            most: Attributes with more values are left out.

        Returns:
            Counts by value, sorted, for each attribute of strings.
        """
        with self._lock:
            return {
                name: dict(sorted(counts.items()))
                for name, counts in self._counted().items()
                if len(counts) <= most
            }

    def changed(
        self, added: Sequence[Attributes], removed: Sequence[Attributes]
    ) -> None:
        """Update the counts after a change of the index.

        Args:
            added: The attributes of the images that were added.
            removed: The attributes of the images that were removed.
        """
        with self._lock:
            self._ids = None
            self.changes += 1
            if self._values is None:
                return
            for attributes in added:
                _count(self._values, attributes, 1)
            for attributes in removed:
                _count(self._values, attributes, -1)

    def _counted(self) -> dict[str, Counter[str]]:
        if self._values is None:
            self._values = {}
            ids = self._index.ids.tolist() if self._index.stats().attributes else []
            for start in range(0, len(ids), _BLOCK):
                for item in self._items(ids[start : start + _BLOCK]):
                    _count(self._values, item.attributes, 1)
        return self._values


def _count(values: dict[str, Counter[str]], attributes: Attributes, times: int) -> None:
    """Add the strings among an image's attributes to the counts, or remove them."""
    for name, value in attributes.items():
        if isinstance(value, str) and name != STORED_IMAGE:
            counts = values.setdefault(name, Counter())
            counts[value] += times
            if counts[value] <= 0:
                del counts[value]
