"""Implement what all indexes in memory have in common.

A search takes the newest snapshot and keeps it; a change makes the next one. So neither
waits for the other.
"""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import one_of, whole
from tfdml.files import short_names
from tfdml.index._checks import (
    check_count,
    check_embed,
    check_fingerprint,
    check_load,
    check_update,
    own_embeddings,
)
from tfdml.index._filters import Where, matching
from tfdml.index._interface import Embed, Index, IndexStats, Items, Metric, SearchResult
from tfdml.index.local._changes import addition, replacement, rows_there
from tfdml.index.local._guarded_table import GuardedTable
from tfdml.index.local._limits import Limits
from tfdml.index.local._searching import nearest
from tfdml.index.local._width import Width
from tfdml.index.rows import (
    Columns,
    Ids,
    Table,
    check_attributes,
    handed_out,
    read_ids,
    stored,
)
from tfdml.index.storage import Change, describe_table, read_table, write_table
from tfdml.messages import shown
from tfdml.versioned_folder import (
    IndexFileError,
    check_class,
    check_destination,
    check_notes,
    read_version,
)


class MemoryIndex(Index):
    """Ids, attributes, checks, changes and files of an index in memory.

    Attributes:
        limits: At which sizes searches and compaction take another way.
    """

    limits: ClassVar[Limits] = Limits()
    _takes_norms: ClassVar[bool] = False  # whether its searcher accepts norms
    _class_names: ClassVar[tuple[str, ...]] = ()  # in manifests, also former ones

    def __init__(
        self,
        table: Table,
        width: Width,
        model_fingerprint: str,
        embed: Embed | None,
    ) -> None:
        self._guarded = GuardedTable(table, width.kept, self.limits)
        self._width = width
        self._dimension, self._metric = width.kept, width.metric
        self._embedding_dimension = width.whole_if_cut
        self._model_fingerprint = model_fingerprint
        check_embed(embed)
        self.embed = embed
        self.notes = {}

    @property
    def _table(self) -> Table:
        return self._guarded.table

    @classmethod
    def _from_rows(
        cls,
        embeddings: ArrayLike,
        ids: Ids | None,
        attributes: Mapping[str, Sequence[Any]] | None,
        metric: Metric,
        model_fingerprint: str,
        embed: Embed | None,
        dimensions: int | None = None,
        **options: Any,
    ) -> Self:
        """Check what `build` was given, and build."""
        one_of("metric", metric, get_args(Metric))
        check_embed(embed)
        gallery = own_embeddings("embeddings", embeddings, unit=metric == "cosine")
        gallery, width = Width.of(gallery, dimensions, metric)
        rows = len(gallery)
        checked = np.arange(rows, dtype=np.int64) if ids is None else read_ids(ids)
        check_count(checked, rows)
        new = check_attributes(attributes, rows, {})
        columns = Columns().with_rows(0, new, rows)
        check_fingerprint(model_fingerprint)
        searcher = cls._build(gallery, metric, **options) if rows else None
        table = Table.start(searcher, metric, gallery, stored(checked), columns)
        return cls(table, width, model_fingerprint, embed)

    # Changes

    def add(
        self,
        embeddings: ArrayLike,
        ids: Ids,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """See `Index.add`."""
        rows = self._own_rows(embeddings)
        with self._guarded.changing() as table:
            self._make(addition(table, rows, ids, attributes))

    def update(
        self,
        ids: Ids,
        embeddings: ArrayLike | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """See `Index.update`. An updated item becomes the last of `ids`."""
        check_update(embeddings, attributes)
        with self._guarded.changing() as table:
            checked = read_ids(ids, kind=table.kind)
            old = rows_there(table, checked)
            rows = None if embeddings is None else self._own_rows(embeddings)
            change = replacement(table, checked, old, rows, attributes)
            if change is not None:
                self._make(change)

    def remove(self, ids: Ids) -> None:
        """See `Index.remove`."""
        with self._guarded.changing() as table:
            checked = read_ids(ids, kind=table.kind)
            rows_there(table, checked)
            none = np.empty((0, self._dimension), np.float32)
            self._make(Change(checked, checked[:0], none, {}))

    def _own_rows(self, rows: ArrayLike) -> NDArray[np.float32]:
        unit = self._metric == "cosine"
        checked = own_embeddings("embeddings", rows, unit=unit)
        return self._width.of_rows("embeddings", checked)

    def _make(self, change: Change) -> None:
        self._guarded.change(change, self.compact)

    # Searching

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Ids | Sequence[Ids] | None = None,
    ) -> SearchResult:
        """See `Index.search`."""
        checked, norms = self._width.of_queries(queries)
        k = whole("k", k)
        state, passed, banned = self._guarded.excluding(exclude, len(checked))
        if where is not None:
            held = matching(where, state.columns, state.rows)
            passed = held if passed is None else held & passed
        known = {"norms": norms} if self._takes_norms else {}
        rows, scores = nearest(state, checked, k, passed, banned, self.limits, **known)
        self._guarded.searched(state, len(checked), self.compact)
        return SearchResult(state.handed_out_ids(rows), scores)

    # What it holds

    def get(self, ids: Ids) -> Items:
        """See `Index.get`."""
        checked = read_ids(ids, kind=self._table.kind, may_repeat=True)
        with self._guarded.reading() as table:
            rows = rows_there(table, checked)
            state = table.snapshot
        found = state.embeddings_of(rows), state.values_of(rows)
        return Items(handed_out(checked), *found)

    def count(self, where: Where | None = None) -> int:
        """See `Index.count`."""
        state = self._table.snapshot
        if where is None:
            return state.count
        passed = matching(where, state.columns, state.rows)
        return int(np.count_nonzero(passed & state.live))

    def __contains__(self, item: object) -> bool:
        if isinstance(item, bool) or not isinstance(item, str | int | np.integer):
            return False
        with self._guarded.reading() as table:
            try:
                ids = read_ids(cast(Ids, [item]), kind=table.kind)
            except ValueError:  # of the other kind, or none that an index has
                return False
            return bool(table.rows_of(ids)[0] >= 0)

    @property
    def ids(self) -> NDArray[Any]:
        """The ids in the order of the gallery, `[N]`, a copy."""
        state = self._table.snapshot
        return state.handed_out_ids(np.flatnonzero(state.live))

    def ids_where(self, where: Where) -> NDArray[Any]:
        """See `Index.ids_where`."""
        state = self._table.snapshot
        passed = matching(where, state.columns, state.rows)
        return state.handed_out_ids(np.flatnonzero(passed & state.live))

    def stats(self) -> IndexStats:
        """See `Index.stats`.

        `details` has `added` and `removed`, rows since the last build, `log_bytes`,
        `embedding_dimension` where embeddings were cut, and what the class adds.
        `save_is_due` is whether a `save` would make the next load faster: the index was
        rebuilt since the last save, or should be.
        """
        state = self._table.snapshot
        details = {
            "added": state.rows - state.base,
            "removed": state.rows - state.count,
            "log_bytes": self._guarded.log_bytes,
            "folder": self._guarded.folder,
            "save_is_due": self._guarded.save_is_due,
        }
        return IndexStats(
            type(self).__name__,
            state.count,
            self._dimension,
            self._metric,
            self._model_fingerprint,
            {name: column.kind for name, column in state.columns.items()},
            details | self._width.described() | self._describe(state.searcher),
        )

    # Rebuilding

    def compact(self) -> None:
        """Rebuild the searcher, of all items and without the removed ones.

        This happens automatically, in a thread, after many items were added or removed,
        and after many searches of an index that was loaded with such changes. Searches
        and changes go on meanwhile.
        """
        self._guarded.compact(self._build_again)

    # Files

    @short_names()
    def save(self, folder: str | os.PathLike[str]) -> None:
        """See `Index.save`.

        From then on, each change is written to a log in the folder before it is made:
        once `add`, `update` or `remove` has returned, `load` finds the change, whatever
        happens to the process. The folder may be moved and copied.

        After many changes the index is rebuilt first, as by `compact`.

        Raises:
            LockedError: Another process, or another index, is changing the folder.
            IndexFileError: Also if another index was saved since to the folder that
                this one comes from: its changes would be lost.
            TypeError: `notes` is not a dictionary of JSON values.
            ValueError: `notes` holds a number that is not finite.
        """
        check_notes(self.notes)
        check_destination(folder)
        self._guarded.save(folder, self._description, self._write_all, self.compact)

    def _description(self, table: Table) -> dict[str, Any]:
        state = table.snapshot
        return {
            "class": type(self).__name__,
            "count": state.count,
            "dimension": self._dimension,
            **self._width.described(),
            "metric": self._metric,
            "model_fingerprint": self._model_fingerprint,
            "notes": self.notes,
            **self._describe(state.searcher),
            **describe_table(table),
        }

    def _write_all(self, table: Table, data: Path) -> None:
        write_table(table, data)
        self._write(table.snapshot.searcher, data)

    @classmethod
    @short_names()
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        model_fingerprint: str | None = None,
        embed: Embed | None = None,
    ) -> Self:
        """Load an index of this class; every file is checked against its SHA-256.

        Changes since it was saved are applied. The first further change locks the
        folder until the index is closed.

        Args:
            folder: What `save` has written, also after a move or as a copy.
            model_fingerprint: That of the model that will embed the queries. If given,
                an index of another model's embeddings is rejected.
            embed: See `Index`.

        Returns:
            The index.

        Raises:
            IndexFileError: The folder holds no index, a damaged one, or another one.
            ValueError: `model_fingerprint` is not a string, or `embed` not a function.
        """
        check_load(model_fingerprint, embed)
        restore = partial(
            cls._restore, model_fingerprint=model_fingerprint, embed=embed
        )
        return read_version(folder, restore)

    @classmethod
    def _restore(
        cls,
        manifest: dict[str, Any],
        data: Path,
        model_fingerprint: str | None,
        embed: Embed | None,
    ) -> Self:
        check_class(manifest, data.parent, cls._class_names or (cls.__name__,))
        built_from = manifest["model_fingerprint"]
        if model_fingerprint not in (None, built_from):
            raise IndexFileError(
                "`model_fingerprint` must be that of the model which the index was "
                f"built from, {shown(built_from)}. Received: "
                f"{shown(model_fingerprint)}. Build the index again with the new model."
            )
        table = read_table(manifest, data, cls._read)
        index = cls(table, Width.read(manifest, data.parent), built_from, embed)
        index.notes = manifest["notes"]
        index._guarded.opened(data)
        return index

    def close(self) -> None:
        """See `Index.close`. Waits for a searcher that is being built."""
        self._guarded.close()

    # The searcher

    @classmethod
    @abstractmethod
    def _build(
        cls, gallery: NDArray[np.float32], metric: Metric, **options: Any
    ) -> Any:
        """Return an object with `nearest(queries, k)`; the array stays as it is."""

    @abstractmethod
    def _build_again(self, gallery: NDArray[np.float32], searcher: Any) -> Any:
        """Rebuild the searcher for other rows; it is None if there was none."""

    @abstractmethod
    def _write(self, searcher: Any, data: Path) -> None:
        """Write what a load needs besides rows; the searcher is None without any."""

    def _describe(self, searcher: Any) -> dict[str, Any]:
        """Return what `_read` needs besides files, and what `stats` shows."""
        return {}

    @classmethod
    @abstractmethod
    def _read(
        cls, manifest: dict[str, Any], data: Path, embeddings: NDArray[np.float32]
    ) -> Any:
        """Restore the searcher."""
