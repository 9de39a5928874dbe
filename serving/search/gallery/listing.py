"""The pictures of a gallery as a list, and the values of their attributes."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from serving.search.gallery.gallery import CLASS
from serving.search.gallery.items import Attributes, Item
from serving.search.gallery.stored_images import PICTURE
from tfdml.index import ScannIndex, Where

_BLOCK = 4096  # items whose attributes are read at one time


class Listing:
    """Keeps what takes long to read of the index of a large gallery.

    Any number of threads may use it.

    Args:
        index: The index. What changes it calls `changed`.
        items: Returns pictures by their ids.

    Attributes:
        changes: How often `changed` was called.
    """

    def __init__(
        self, index: ScannIndex, items: Callable[[Sequence[str]], list[Item]]
    ) -> None:
        self.changes = 0
        self._index = index
        self._items = items
        self._lock = threading.Lock()
        self._ids: NDArray[Any] | None = None
        self._values: dict[str, Counter[str]] | None = None

    def ids(self, where: Where | None = None) -> NDArray[Any]:
        """Return the ids of pictures in the order of the gallery; do not modify.

        Args:
            where: Only of those whose attributes are as stated. Default: of all.

        Raises:
            ValueError: The index has no such attribute.
        """
        if where:
            return self._index.ids_where(where)
        with self._lock:
            if self._ids is None:
                self._ids = self._index.ids
            return self._ids

    def classes(self) -> int:
        """Return how many classes the pictures have."""
        with self._lock:
            return len(self._counted().get(CLASS, ()))

    def values(self, most: int) -> dict[str, dict[str, int]]:
        """Return how many pictures have each value of an attribute.

        Args:
            most: Attributes with more values are left out.

        Returns:
            Counts by value, sorted, of each attribute of strings.
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
        """Take note of a change of the index.

        Args:
            added: The attributes of the pictures that were added.
            removed: The attributes of the pictures that were removed.
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
    """Count the strings among the attributes of a picture, or take them off again."""
    for name, value in attributes.items():
        if isinstance(value, str) and name != PICTURE:
            counts = values.setdefault(name, Counter())
            counts[value] += times
            if counts[value] <= 0:
                del counts[value]
