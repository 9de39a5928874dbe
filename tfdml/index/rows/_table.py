"""Hold the rows of an index: new ones are added, removed ones are marked.

The first rows, the base, are those that a searcher was built of. The others, the tail,
were added since. One thread changes a table at a time. Any number of others read a
`Snapshot`, which stays as it is: added rows lie behind it, and removed ones are marked
in a copy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows._attributes import Checked, Column, Columns
from tfdml.index.rows._column_view import ColumnView, Scalar
from tfdml.index.rows._growing_array import GrowingArray
from tfdml.index.rows._id_map import IdMap
from tfdml.index.rows._ids import (
    StoredIds,
    growing,
    handed_out_rows,
    kind_of,
    stored,
)
from tfdml.index.rows._row_searcher import RowSearcher

_FIRST_INEXACT = 2.0**53  # below, a float represents every integer


@dataclass(frozen=True)
class Snapshot:
    """A gallery as it was at one moment.

    Args:
        searcher: Finds the nearest of the base: `nearest(queries, k)`. None where the
            base is empty.
        metric: How rows are compared.
        base_embeddings: The base, float32 `[B, D]`.
        base_ids: Its ids `[B]`.
        tail_embeddings: The tail, float32 `[T, D]`.
        tail_ids: Its ids `[T]`.
        columns: The attributes of all rows.
        live: Which of all rows were not removed, `[B + T]`.
        count: How many these are.
    """

    searcher: Any
    metric: str
    base_embeddings: NDArray[np.float32]
    base_ids: StoredIds
    tail_embeddings: NDArray[np.float32]
    tail_ids: StoredIds
    columns: Mapping[str, ColumnView]
    live: NDArray[np.bool_]
    count: int

    @property
    def base(self) -> int:
        """How many rows the base has."""
        return len(self.base_ids)

    @property
    def rows(self) -> int:
        """How many rows there are, removed ones too."""
        return len(self.live)

    @cached_property
    def tail_searcher(self) -> RowSearcher:
        """Return what searches the tail."""
        return RowSearcher(self.tail_embeddings, self.metric)  # type: ignore[arg-type]

    def embeddings_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the embeddings of some rows, a copy."""
        return _of(self.base_embeddings, self.tail_embeddings, rows)

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of some rows, int64 or objects, in the shape of `rows`."""
        return _of(self.base_ids, self.tail_ids, rows)

    def handed_out_ids(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of some rows as callers get them, in the shape of `rows`."""
        return _of(self.base_ids, self.tail_ids, rows, handed_out_rows)

    def attributes_of(self, rows: NDArray[np.int64]) -> Checked:
        """Return the attributes of some rows, to be added to a table."""
        return {
            name: (column.kind, column.values_at(rows))
            for name, column in self.columns.items()
        }

    def values_of(self, rows: NDArray[np.int64]) -> list[dict[str, Scalar]]:
        """Return the attributes of each row, without those that have no value."""
        found: list[dict[str, Scalar]] = [{} for _ in rows]
        for name, column in self.columns.items():
            for own, value in zip(found, column.values_at(rows), strict=True):
                if value is not None:
                    own[name] = value
        return found


def _of(
    base: Any,
    tail: Any,
    rows: NDArray[np.int64],
    take: Callable[[Any, NDArray[np.int64]], NDArray[Any]] = getitem,
) -> NDArray[Any]:
    if not len(tail):
        return take(base, rows)
    in_tail = rows >= len(base)
    if not in_tail.any():
        return take(base, rows)
    old, new = take(base, rows[~in_tail]), take(tail, rows[in_tail] - len(base))
    shape = (*rows.shape, *new.shape[1:])
    found = np.empty(shape, np.promote_types(old.dtype, new.dtype))
    found[in_tail], found[~in_tail] = new, old
    return found


class Table:
    """The rows of an index, and where each id is.

    Attributes:
        snapshot: What those that search see.

    Args:
        snapshot: What it holds to begin with; not copied.
        columns: The columns of all its rows.
        base_rows: The rows of the base's ids, if they are at hand.
    """

    def __init__(
        self, snapshot: Snapshot, columns: Columns, base_rows: IdMap | None = None
    ) -> None:
        self.snapshot = self._newest = snapshot
        self._columns = columns
        self._live = self._shown = GrowingArray(snapshot.live)
        self._embeddings = GrowingArray(snapshot.tail_embeddings)
        self._ids = growing(snapshot.tail_ids)
        self._map = IdMap(snapshot.base_ids) if base_rows is None else base_rows
        self._reset_map()

    @classmethod
    def start(
        cls,
        searcher: Any,
        metric: str,
        embeddings: NDArray[np.float32],
        ids: StoredIds,
        columns: Columns,
        base_rows: IdMap | None = None,
    ) -> "Table":
        """Make a table of a base alone."""
        rows = len(ids)
        snapshot = Snapshot(
            searcher,
            metric,
            _locked(embeddings),
            ids,
            _locked(embeddings[:0]),
            growing(ids).first(0),
            columns.view(rows),
            _locked(np.ones(rows, np.bool_)),
            rows,
        )
        return cls(snapshot, columns, base_rows)

    @property
    def kind(self) -> str | None:
        """The kind of the ids; None as long as there are no items."""
        return kind_of(self._newest.base_ids) if self._newest.count else None

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each attribute."""
        return self._columns.kinds

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns of all rows."""
        return self._columns.columns

    def may_become(self, name: str, kind: str, removed: NDArray[np.int64]) -> bool:
        """Return whether an attribute may have another kind once rows are removed.

        It may if no other row has a value, and integers may become floats that are
        equal.
        """
        column = self._newest.columns[name]
        known = column.known & self._newest.live
        known[removed] = False
        if not known.any():
            return True
        if (column.kind, kind) != ("integer", "number"):
            return False
        values = column.values[known]
        return bool(np.abs(values.astype(np.float64)).max() < _FIRST_INEXACT)

    def rows_of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each id, -1 for one that is missing or was removed."""
        if kind_of(ids) != self.kind:
            return np.full(len(ids), -1, np.int64)
        rows = self._map.rows(ids)
        there = rows >= 0
        rows[there] = np.where(self._newest.live[rows[there]], rows[there], -1)
        return rows

    def replace(
        self,
        removed: NDArray[np.int64],
        embeddings: NDArray[np.float32],
        ids: NDArray[Any],
        attributes: Checked,
    ) -> None:
        """Remove rows and add others, in one step for those that search.

        Whatever stops it, such as a lack of memory, nothing has changed then.
        """
        before = self._columns, self._live, self._newest
        try:
            self.stage(removed, embeddings, ids, attributes)
            self.publish()
        except BaseException:
            if self.snapshot is not self._newest:
                self._columns, self._live, self._newest = before
                self._reset_map()
            raise

    def publish(self) -> None:
        """Show those that search what was staged."""
        # In this order, an interrupt between the two costs one more copy of the marks.
        self._shown, self.snapshot = self._live, self._newest

    def stage(
        self,
        removed: NDArray[np.int64],
        embeddings: NDArray[np.float32],
        ids: NDArray[Any],
        attributes: Checked,
    ) -> None:
        """Remove rows and add others, unseen by those that search until `publish`.

        Of many changes in a row, none copies the marks of all rows but the first. Ids
        lead to the new rows at once. Whatever stops it, nothing has changed then.
        """
        old = self._newest
        rows = old.rows + len(ids)
        tail = rows - old.base
        live = self._live
        if len(removed) and live is self._shown:
            live = live.copied(old.rows)
        columns = self._columns
        if len(ids):
            live.put(old.rows, np.ones(len(ids), np.bool_))
            self._embeddings.put(old.rows - old.base, embeddings)
            self._ids.put(old.rows - old.base, ids)
            columns = columns.with_rows(old.rows, attributes, len(ids))
        new = replace(
            old,
            tail_embeddings=self._embeddings.first(tail),
            tail_ids=self._ids.first(tail),
            columns=columns.view(rows),
            live=live.first(rows),
            count=old.count - len(removed) + len(ids),
        )
        try:
            self._map.append(ids, old.rows)
            live.set(removed, False)
            self._columns, self._live, self._newest = columns, live, new
        except BaseException:
            live.set(removed, True)
            self._reset_map()
            raise

    def emptied(self, ids: NDArray[Any]) -> "Table":
        """Return a table without rows, for ids of this kind."""
        old = self._newest
        columns = self._columns_of(np.empty(0, np.int64))
        return Table.start(
            None, old.metric, old.base_embeddings[:0].copy(), stored(ids[:0]), columns
        )

    def _reset_map(self) -> None:
        ids = self._newest.tail_ids
        self._map.reset(ids[np.arange(len(ids))])

    def rebuilt(
        self,
        old: Snapshot,
        searcher: Any,
        embeddings: NDArray[np.float32],
        base_rows: IdMap,
    ) -> "Table":
        """Return a table with the live rows of `old` as its base.

        What was changed since `old` is changed in it too.

        Args:
            old: A snapshot of this table.
            searcher: Searches its live rows.
            embeddings: Their embeddings.
            base_rows: Their ids.
        """
        rows, now = np.flatnonzero(old.live), self.snapshot
        columns = self._columns_of(rows)
        table = Table.start(
            searcher, old.metric, embeddings, base_rows.ids, columns, base_rows
        )
        since = old.rows + np.flatnonzero(now.live[old.rows :])
        table.replace(
            np.flatnonzero(~now.live[rows]),
            now.embeddings_of(since),
            now.ids_of(since),
            now.attributes_of(since),
        )
        return table

    def _columns_of(self, rows: NDArray[np.int64]) -> Columns:
        columns = self._columns.columns.items()
        return Columns({name: column.of_rows(rows) for name, column in columns})


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
