"""Map ids to their rows."""

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows._ids import StoredIds, kind_of
from tfdml.index.rows._texts import Texts


class IdMap:
    """The row of each id. A gallery's own are sorted once, those added are in a dict.

    An id that was removed keeps its row here: the table knows which rows were removed.
    An id that is added again leads to its new row.

    Args:
        ids: Ids of the rows 0 to N - 1, without repetition.
    """

    def __init__(self, ids: StoredIds | NDArray[Any]) -> None:
        self.ids = ids
        self._keys = np.empty(0, np.int64)
        self._order: NDArray[np.int64] | None = None
        self._added: dict[str | int, int] = {}

    def sort(self) -> NDArray[np.int64]:
        """Sort the gallery's own ids, so that the first call of `rows` need not.

        Strings are sorted by their hashes: these compare faster.
        """
        if self._order is None:
            self._keys = _keys(self.ids)
            # Integers are often in order already; hashes never are.
            is_text = kind_of(self.ids) == "string"
            self._order = np.argsort(self._keys, kind=None if is_text else "stable")
        return self._order

    def append(self, ids: NDArray[Any], first_row: int) -> None:
        """Add the ids of the rows from `first_row` on."""
        self._added.update(
            zip(ids.tolist(), range(first_row, first_row + len(ids)), strict=True)
        )

    def reset(self, ids: NDArray[Any]) -> None:
        """Forget all added ids, and start again with these, the first to be added."""
        self._added = {}
        self.append(ids, len(self.ids))

    def rows(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each id, -1 where there was never one."""
        found = np.full(len(ids), -1, np.int64)
        if len(ids) and len(self.ids):
            self._find(ids, found)
        if self._added:
            for place, value in enumerate(ids.tolist()):
                found[place] = self._added.get(value, found[place])
        return found

    def _find(self, ids: NDArray[Any], found: NDArray[np.int64]) -> None:
        """Write the rows of the gallery's own ids."""
        order, keys = self.sort(), _keys(ids)
        asked = np.arange(len(ids))
        places = np.searchsorted(self._keys, keys, sorter=order)
        while len(asked):
            rows = order[np.minimum(places, len(order) - 1)]
            alike = (places < len(order)) & (self._keys[rows] == keys[asked])
            if not alike.any():
                return
            asked, places, rows = asked[alike], places[alike], rows[alike]
            same = np.asarray(self.ids[rows] == ids[asked], np.bool_)
            found[asked[same]] = rows[same]
            # Another id may have the same hash; it comes next.
            asked, places = asked[~same], places[~same] + 1


def _keys(ids: StoredIds | NDArray[Any]) -> NDArray[np.int64]:
    """Return integers that equal ids have in common."""
    if kind_of(ids) == "integer":
        return np.asarray(ids)
    parts = ids.parts() if isinstance(ids, Texts) else [ids.tolist()]
    return np.fromiter(map(hash, chain.from_iterable(parts)), np.int64, len(ids))
