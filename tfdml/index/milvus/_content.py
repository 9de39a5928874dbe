"""Read, search and change the items of a collection, with their attributes' kinds."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tfdml.index._checks import check_count
from tfdml.index._filters import Where
from tfdml.index._interface import Items, SearchResult
from tfdml.index.milvus._collection import EMBEDDING, declare, kinds_of
from tfdml.index.milvus._filters import ATTRIBUTES, ID, expression_of
from tfdml.index.milvus._rows import (
    attributes_of,
    attributes_of_rows,
    check_milvus_ids,
    make_rows,
    of_kinds,
)
from tfdml.index.milvus._search import nearest
from tfdml.index.milvus._store import Store
from tfdml.index.rows import (
    Checked,
    Ids,
    Scalar,
    check_attributes,
    check_exclude,
    handed_out,
)
from tfdml.messages import shown

Attributes = Mapping[str, Sequence[Any]] | None


class Content:
    """The items of a collection that is open.

    Embeddings and `k` are checked before. Attributes are checked by the kinds that the
    collection has at that moment: another client may have declared some.

    Attributes:
        store: Sends the requests.
        kinds: The kind of each attribute, as last read.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.kinds: dict[str, str] = {}
        self._writing = threading.Lock()
        self.read_kinds()

    def read_kinds(self) -> None:
        """Read the kinds of attributes that were declared."""
        store = self.store
        self.kinds = kinds_of(store.client, store.collection, store.timeout)

    def add(
        self, ids: Ids, embeddings: NDArray[np.float32], attributes: Attributes
    ) -> None:
        """Add items; see `Index.add`."""
        checked, count = self._ids(ids), len(embeddings)
        check_count(checked, count)
        with self._writing:
            new = self._checked(attributes, count)
            rows = make_rows(checked, embeddings, attributes_of_rows(new, count))
            there = self.store.read(checked)
            if there:
                raise ValueError(
                    "`ids` must not be in the index already. "
                    f"Received: {shown(next(iter(there)))}. Use `update`."
                )
            self._declare(new)
            self.store.add(rows)

    def update(
        self, ids: Ids, embeddings: NDArray[np.float32] | None, attributes: Attributes
    ) -> None:
        """Replace embeddings, attributes, or both; see `Index.update`."""
        checked = self._ids(ids)
        if embeddings is not None:
            check_count(checked, len(embeddings))
        with self._writing:
            new = self._checked(attributes, len(checked))
            old = self._items(checked)
            merged: list[dict[str, Scalar | None]] = [
                {**before, **given}
                for before, given in zip(
                    old.attributes, attributes_of_rows(new, len(checked)), strict=True
                )
            ]
            rows = make_rows(
                checked, old.embeddings if embeddings is None else embeddings, merged
            )
            self._declare(new)
            self.store.replace(rows, make_rows(*old))

    def remove(self, ids: Ids) -> None:
        """Remove items; see `Index.remove`."""
        checked = self._ids(ids)
        with self._writing:
            _check_there(checked, self.store.read(checked))
            self.store.delete(checked)

    def _ids(self, ids: Ids, *, may_repeat: bool = False) -> NDArray[Any]:
        kind = self.store.facts.ids
        return check_milvus_ids(ids, kind=kind, may_repeat=may_repeat)

    def _checked(self, attributes: Attributes, rows: int) -> Checked:
        if attributes:
            self.read_kinds()
        return check_attributes(attributes, rows, self.kinds)

    def _declare(self, new: Checked) -> None:
        kinds = {
            name: kind for name, (kind, _) in new.items() if name not in self.kinds
        }
        store = self.store
        declare(store.client, store.collection, kinds, store.timeout)
        self.kinds = {**self.kinds, **kinds}

    def ids(self, where: Where | None = None) -> NDArray[Any]:
        """Return the ids of all items, or those that pass, in ascending order."""
        kind = np.int64 if self.store.facts.ids == "integer" else np.object_
        # Without repetition, even if another program has inserted one again.
        return handed_out(
            np.array(sorted(set(self.store.ids(self._expression(where)))), kind)
        )

    def holds(self, item: object) -> bool:
        """Return whether an id is in the collection."""
        if isinstance(item, bool) or not isinstance(item, str | int | np.integer):
            return False
        try:
            ids = self._ids(cast(Ids, [item]))
        except ValueError:  # of the other kind, or none that Milvus can have
            return False
        return bool(self.store.read(ids))

    def get(self, ids: Ids) -> Items:
        """Return items by their ids; see `Index.get`."""
        return self._items(self._ids(ids, may_repeat=True))

    def _items(self, ids: NDArray[Any]) -> Items:
        rows = self.store.read(ids, [ID, EMBEDDING, ATTRIBUTES])
        _check_there(ids, rows)
        embeddings = np.empty((len(ids), self.store.facts.dimension), np.float32)
        attributes = []
        for place, name in enumerate(ids.tolist()):
            embeddings[place] = rows[name][EMBEDDING]
            attributes.append(attributes_of(rows[name]))
        if not set().union(*attributes) <= self.kinds.keys():
            self.read_kinds()
        kinds = self.kinds
        values = [of_kinds(own, kinds) for own in attributes]
        return Items(handed_out(ids), embeddings, values)

    def count(self, where: Where | None) -> int:
        """Return the number of items; see `Index.count`."""
        return self.store.count(self._expression(where))

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        where: Where | None,
        exclude: Ids | Sequence[Ids] | None,
    ) -> SearchResult:
        """Find the nearest items of checked queries; see `Index.search`."""
        expression, excluded = self._expression(where), None
        if exclude is not None:
            excluded = check_exclude(exclude, len(queries), self.store.facts.ids)
        return nearest(self.store, expression, queries, k, excluded)

    def _expression(self, where: Where | None) -> str | bool:
        if where is None:
            return True
        if isinstance(where, Mapping) and not where.keys() <= self.kinds.keys():
            self.read_kinds()
        return expression_of(where, self.kinds)


def _check_there(ids: NDArray[Any], rows: Mapping[str | int, Any]) -> None:
    for name in ids.tolist():
        if name not in rows:
            raise KeyError(f"`ids` must be in the index. Received: {shown(name)}.")
