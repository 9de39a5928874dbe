"""Change, save and rebuild a table while others search it.

If the index has a folder, a change is on the disk before it is made. Added rows are
compared with one by one until there are enough of them; then a thread builds a new
searcher of all rows, and switches.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.local._changes import check_fits, of_kind, rows_of
from tfdml.index.local._compaction import Compaction
from tfdml.index.local._limits import Limits
from tfdml.index.local._saved_folder import SavedFolder
from tfdml.index.rows import (
    IdMap,
    Ids,
    Snapshot,
    Table,
    banned_rows,
    check_exclude,
    stored,
)
from tfdml.index.storage import Change

BuildAgain = Callable[[NDArray[np.float32], Any], Any]
"""Rebuilds the searcher for other rows; it is None if there was none."""


class GuardedTable:
    """The table of an index, and the locks of those that use it.

    Args:
        table: What it holds to begin with.
        dimension: That of its embeddings.
        limits: When it is built again.
    """

    def __init__(self, table: Table, dimension: int, limits: Limits) -> None:
        self._table = table
        self._dimension = dimension
        self._saved = SavedFolder()
        # Only one thread changes the index; held long, for the disk and while saving.
        self._writing = threading.RLock()
        # Held for moments: ids lead to rows of the current snapshot.
        self._switch = threading.Lock()
        self._compacting = threading.Lock()
        self._compaction = Compaction(limits)
        self._is_rebuilt = False

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self._table

    @property
    def folder(self) -> str | None:
        """The folder, None as long as the index was not saved."""
        return self._saved.folder

    @property
    def log_bytes(self) -> int:
        """The size of the log, as far as it counts."""
        return self._saved.log_bytes

    @property
    def save_is_due(self) -> bool:
        """Whether the index was built again since it was saved, or should be."""
        return self._is_rebuilt or self._compaction.is_due(self._table.snapshot)

    @contextmanager
    def reading(self) -> Iterator[Table]:
        """Keep changes out for a moment: ids lead to rows of the snapshot."""
        with self._switch:
            yield self._table

    def excluding(
        self, exclude: Ids | Sequence[Ids] | None, queries: int
    ) -> tuple[Snapshot, NDArray[np.bool_] | None, NDArray[np.int64] | None]:
        """Return a snapshot, and which of its rows a search must not return.

        Args:
            exclude: As in `Index.search`.
            queries: How many queries there are.

        Returns:
            The snapshot; which of its rows all queries may return, if not all; and the
            rows that each query must not return, if any has one.
        """
        if exclude is None:
            return self._table.snapshot, None, None
        ids = check_exclude(exclude, queries, self._table.kind)
        with self.reading() as table:
            state = table.snapshot
            if isinstance(ids, list):
                banned = banned_rows([table.rows_of(own) for own in ids])
                return state, None, banned
            rows = table.rows_of(ids)
        passed = np.ones(state.rows, np.bool_)
        passed[rows[rows >= 0]] = False
        return state, passed, None

    @contextmanager
    def changing(self) -> Iterator[Table]:
        """Keep other changes out, also by other processes; see `SavedFolder.lock`."""
        with self._writing:
            self._saved.lock(self._replay)
            yield self._table

    def change(self, change: Change, compact: Callable[[], None]) -> None:
        """Make a change durable and visible: on the disk first, if there is a folder.

        Args:
            change: The change, made under `changing`.
            compact: Calls `compact`; it is called in a thread, if enough has changed.

        Raises:
            OSError: It cannot be written, and was not made.
        """
        if not len(change.ids) and not len(change.removed):
            return
        before = self._table.snapshot
        self._saved.make(
            change, self._apply, lambda: self._table.snapshot is not before
        )
        self._compaction.consider(self._latest, compact)

    def searched(
        self, state: Snapshot, queries: int, compact: Callable[[], None]
    ) -> None:
        """Count a search; after many searches of added rows, the index is rebuilt.

        Args:
            state: What was searched.
            queries: How many queries there were.
            compact: As in `change`.
        """
        self._compaction.searched(state, queries, self._latest, compact)

    def _latest(self) -> Snapshot:
        return self._table.snapshot

    def _replay(self, changes: Iterable[Change]) -> None:
        """Apply the changes of the log; searches see all of them at once."""
        with self._switch:
            table = self._table
            try:
                for change in changes:
                    check_fits(change, table, self._dimension)
                    table = of_kind(change.ids, table)
                    table.stage(*rows_of(change, table))
            finally:
                table.publish()
                self._table = table

    def _apply(self, change: Change) -> None:
        with self._switch:
            table = of_kind(change.ids, self._table)
            table.replace(*rows_of(change, table))
            self._table = table

    def compact(self, build_again: BuildAgain, *, whole: bool = False) -> None:
        """Rebuild the searcher, of all items and without the removed ones.

        Args:
            build_again: Builds it.
            whole: Rebuild it also where nothing has changed.
        """
        with self._compacting:
            table = self._table
            old = table.snapshot
            if old.count == old.base == old.rows and not whole:
                return
            rows = np.flatnonzero(old.live)
            embeddings = old.embeddings_of(rows)
            places = IdMap(stored(old.ids_of(rows)))
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
            folder: See `SavedFolder.save`.
            describe: Returns what the manifest says of the table.
            write: Writes the table's files into an empty folder.
            compact: Calls `compact`, if enough has changed: else each load would find
                an index that has to be built again.
        """
        with self._writing:
            self._saved.catch_up(folder, self._replay)
        # Others may search and change it meanwhile.
        self._compaction.run(self._latest, compact)
        with self._writing:
            self._saved.catch_up(folder, self._replay)
            table = self._table
            self._saved.save(folder, describe(table), lambda data: write(table, data))
            self._is_rebuilt = False

    def opened(self, data: Path) -> None:
        """Attach the folder that the table was read from; see `SavedFolder.opened`."""
        self._saved.opened(data, self._replay)

    def close(self) -> None:
        """Wait for a searcher that is being built, and release the log."""
        self._compaction.wait()
        with self._writing:
            self._saved.close()
