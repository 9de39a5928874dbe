"""A table that is changed, saved and built again while others search it.

A change is on the disk before it is made, where the index has a folder. Rows that were
added are compared with until they are many enough; then a thread builds a new searcher
of all rows, and switches.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.local._compaction import Compaction
from tfdml.index.local._durable import Durable
from tfdml.index.local._replay import check_fits
from tfdml.index.rows import Checked, IdMap, Snapshot, Table, kind_of
from tfdml.index.storage import Change

BuildAgain = Callable[[NDArray[np.float32], Any], Any]
"""Returns the like of a searcher, None if there was none, for other rows."""


class GuardedTable:
    """The table of an index, and what keeps apart those that use it.

    Args:
        table: What it holds to begin with.
        dimension: That of its embeddings.
    """

    def __init__(self, table: Table, dimension: int) -> None:
        self._table = table
        self._dimension = dimension
        self._durable = Durable()
        # One changes at a time, and holds it long: for the disk, and while saving.
        self._writing = threading.RLock()
        # Held for moments: ids lead to rows of the snapshot that is there.
        self._switch = threading.Lock()
        self._compacting = threading.Lock()
        self._compaction = Compaction()
        self._is_rebuilt = False

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self._table

    @property
    def folder(self) -> str | None:
        """The folder, None as long as the index was not saved."""
        return self._durable.folder

    @property
    def log_bytes(self) -> int:
        """The size of the log, as far as it counts."""
        return self._durable.log_bytes

    @property
    def save_is_due(self) -> bool:
        """Whether the index was built again since it was saved, or should be."""
        return self._is_rebuilt or self._compaction.is_due(self._table.snapshot)

    @contextmanager
    def reading(self) -> Iterator[Table]:
        """Keep changes out for a moment: ids lead to rows of the snapshot."""
        with self._switch:
            yield self._table

    @contextmanager
    def changing(self) -> Iterator[Table]:
        """Keep other changes out, also those of other processes; see `Durable.lock`."""
        with self._writing:
            self._durable.lock(self._replay)
            yield self._table

    def change(self, change: Change, compact: Callable[[], None]) -> None:
        """Make a change for good: on the disk first, where the index has a folder.

        Args:
            change: The change, made under `changing`.
            compact: Calls `compact`; it is called in a thread, if enough has changed.

        Raises:
            OSError: It cannot be written, and is not made.
        """
        if not len(change.ids) and not len(change.removed):
            return
        before = self._table.snapshot
        self._durable.make(
            change, self._apply, lambda: self._table.snapshot is not before
        )
        self._compaction.consider(self._latest, compact)

    def searched(
        self, state: Snapshot, queries: int, compact: Callable[[], None]
    ) -> None:
        """Note a search; after many of added rows, the index is built again.

        Args:
            state: What was searched.
            queries: How many queries there were.
            compact: As in `change`.
        """
        self._compaction.searched(state, queries, self._latest, compact)

    def _latest(self) -> Snapshot:
        return self._table.snapshot

    def _replay(self, changes: Iterable[Change]) -> None:
        """Make changes that the log holds; those that search see all at once."""
        with self._switch:
            table = self._table
            try:
                for change in changes:
                    check_fits(change, table, self._dimension)
                    table = _of_kind(change.ids, table)
                    table.stage(*_rows_of(change, table))
            finally:
                table.publish()
                self._table = table

    def _apply(self, change: Change) -> None:
        with self._switch:
            table = _of_kind(change.ids, self._table)
            table.replace(*_rows_of(change, table))
            self._table = table

    def compact(self, build_again: BuildAgain) -> None:
        """Build the searcher again, of all items and without the removed ones."""
        with self._compacting:
            table = self._table
            old = table.snapshot
            if old.count == old.base == old.rows:
                return
            rows = np.flatnonzero(old.live)
            embeddings, ids = old.embeddings_of(rows), old.ids_of(rows)
            places = IdMap(ids)
            places.sort()
            searcher = build_again(embeddings, old.searcher) if len(rows) else None
            with self._writing:
                if self._table is not table:  # it was emptied, for ids of another kind
                    return
                new = table.rebuilt(old, searcher, embeddings, places)
                with self._switch:
                    self._table, self._is_rebuilt = new, True

    def save(
        self,
        folder: str | os.PathLike[str],
        describe: Callable[[Table], dict[str, Any]],
        write: Callable[[Table, Path], None],
        compact: Callable[[], None],
    ) -> None:
        """Save to a folder, in which each change is logged from then on.

        Args:
            folder: See `Durable.save`.
            describe: Returns what the manifest says of the table.
            write: Writes the table's files into an empty folder.
            compact: Calls `compact`, if enough has changed: else each load would find
                an index that has to be built again.
        """
        with self._writing:
            self._durable.catch_up(folder, self._replay)
        # Others may search and change it meanwhile.
        self._compaction.run(self._latest, compact)
        with self._writing:
            self._durable.catch_up(folder, self._replay)
            table = self._table
            self._durable.save(folder, describe(table), lambda data: write(table, data))
            self._is_rebuilt = False

    def opened(self, data: Path) -> None:
        """Take the folder that the table was read from; see `Durable.opened`."""
        self._durable.opened(data, self._replay)

    def close(self) -> None:
        """Wait for a searcher that is being built, and let go of the log."""
        self._compaction.wait()
        with self._writing:
            self._durable.close()


def _of_kind(ids: NDArray[Any], table: Table) -> Table:
    """Return the table that ids are added to: the first of all decide on the kind."""
    if not len(ids) or table.kind is not None:
        return table
    same = kind_of(table.snapshot.base_ids) == kind_of(ids)
    return table if same else table.emptied(ids)


def _rows_of(
    change: Change, table: Table
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[Any], Checked]:
    """Return what `Table.replace` wants to know of a change."""
    removed = table.rows_of(change.removed)
    return removed, change.embeddings, change.ids, change.attributes
