"""Search a collection in Milvus, for galleries that one machine cannot hold."""

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._arguments import one_of, whole
from tfdml._embeddings import as_embeddings
from tfdml.index._checks import (
    check_count,
    check_embed,
    check_fingerprint,
    check_load,
    of_dimension,
)
from tfdml.index._filters import Where
from tfdml.index._interface import Embed, Index, IndexStats, Items, Metric, SearchResult
from tfdml.index.milvus._collection import EMBEDDING, Facts, declare, kinds_of
from tfdml.index.milvus._connection import disconnect, place_of
from tfdml.index.milvus._filters import ATTRIBUTES, ID, expression_of, without_ids
from tfdml.index.milvus._opening import (
    build_store,
    check_settings,
    open_store,
    settings,
)
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
    kind_of,
)
from tfdml.index.storage import IndexFileError, read_version, write_version

_INDEX_PARAMETERS: dict[str, dict[str, int]] = {
    "HNSW": {"M": 16, "efConstruction": 200}
}
_SEARCH_PARAMETERS: dict[str, dict[str, int]] = {"HNSW": {"ef": 128}}


class MilvusIndex(Index):
    """A collection in Milvus: on a cluster by its address, or embedded by a path.

    It answers and raises like the other indexes, with these differences:

    - Milvus searches approximately, depending on the index type. The recall measured
      by `ScannIndex` does not apply. A query that gets fewer items than exist is asked
      again, more widely, and then compared with all items that may be returned, if
      they are at most 100,000. If they are more, there may be fewer columns than `k`.
      Items of equal score come in any order.
    - `k` plus the ids excluded for one query alone is at most 16,384.
    - `ids` asks for `batch_size` of them at a time, and returns them in ascending
      order. Of items added or removed meanwhile, some may be included.
      `near_duplicates` sends about three requests per batch.
    - Each change is on Milvus' disks when the method returns. With the consistency
      `"Strong"`, the default, every client finds it from then on.
    - Several programs may change a collection, but not the same items at the same
      time: Milvus has no transactions. Whether ids exist is checked before they are
      written. If two programs add one id at the same moment, both succeed, and the
      later item stays. During a change, searches see part of it. If the server fails
      during `add` or `update`, the change is undone as far as the server can be
      reached; `remove` may have removed some items. A program that is killed leaves
      what it has written.
    - Attributes are keys of one JSON field, of at most 65,535 bytes per item. A filter
      on a large collection is faster with an index on its key, which Milvus can make.
    - Milvus keeps its data itself: `save` writes where they are, and nothing else.

    Errors of the server, other than those stated by `Index`, are
    `pymilvus.MilvusException`.

    A path opens milvus-lite, which serves one process at a time, compares in Python
    and is meant for tests and for a few thousand items.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from tfdml.index import MilvusIndex
        >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
        >>> folder = tempfile.TemporaryDirectory()
        >>> index = MilvusIndex.build(
        ...     gallery,
        ...     ["right", "up", "between"],
        ...     uri=f"{folder.name}/milvus.db",
        ...     collection="directions",
        ... )
        >>> ids, scores = index.search(np.array([[2.0, 0.0]]), k=2)
        >>> ids.tolist(), scores.round(3).tolist()
        ([['right', 'between']], [[1.0, 0.6000000238418579]])
        >>> index.close()
        >>> folder.cleanup()
    """

    def __init__(
        self, store: Store, uri: str, database: str, embed: Embed | None
    ) -> None:
        """Wrap an open collection; use `build` or `connect`."""
        self._store = store
        self._facts = store.facts
        self._uri = place_of(uri)
        self._database = database
        self.embed = embed
        self._writing = threading.Lock()
        self._kinds: dict[str, str] = {}
        try:
            self._read_kinds()
        except BaseException:
            self.close()  # nobody else has it
            raise

    @classmethod
    def build(
        cls,
        embeddings: ArrayLike,
        ids: Ids | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
        *,
        uri: str,
        collection: str,
        token: str | None = None,
        database: str = "",
        index_type: str = "HNSW",
        index_parameters: Mapping[str, Any] | None = None,
        search_parameters: Mapping[str, Any] | None = None,
        metric: Metric = "cosine",
        model_fingerprint: str = "",
        embed: Embed | None = None,
        consistency: str = "Strong",
        batch_size: int = 5_000,
        timeout: float = 60.0,
    ) -> Self:
        """Make a new collection of a gallery.

        On an error, the collection is dropped again. `connect` rejects one whose
        `build` was killed.

        Args:
            embeddings: The gallery, as in `ExactIndex.build`.
            ids: One per row, all strings or all integers, without repetition. Default:
                0 to N - 1. The kind cannot change: for an empty collection of strings
                pass `np.empty(0, str)`.
            attributes: See `Index.add`. Default: none.
            uri: The address of the cluster, such as "http://milvus:19530" or
                "https://...", or for milvus-lite a path that ends with ".db", in an
                existing folder.
            collection: A name that is new.
            token: As in `connect`.
            database: As in `connect`.
            index_type: Milvus' name of an index on float vectors: `"HNSW"` (default),
                `"FLAT"` (compares with every item), `"IVF_FLAT"`, `"IVF_SQ8"`,
                `"SCANN"`, `"DISKANN"` and more. milvus-lite has fewer.
            index_parameters: What it is built with. Default: of HNSW M 16 and
                efConstruction 200; of others, Milvus' own.
            search_parameters: What it is searched with. Default: of HNSW ef 128; of
                others, Milvus' own. They are recorded in the collection.
            metric: `"cosine"` or `"dot_product"`.
            model_fingerprint: Names the model that made the embeddings, so that
                `connect` can refuse another model's.
            embed: See `Index`.
            consistency: `"Strong"` (default), `"Session"`, `"Bounded"` or
                `"Eventually"`: how recent the data is that a search sees. The checks
                before changes are always strong.
            batch_size: The most items in one request, at least 1; fewer if they are
                large.
            timeout: As in `connect`.

        Returns:
            The index.

        Raises:
            ValueError: A shape, dtype, value, id, attribute or setting is not as stated
                above, or the collection exists already.
            ImportError: pymilvus, or for a path milvus-lite, is not installed.
            LockedError: Another process has the path open.
            ConnectionError: The server does not answer, or refuses the token.
        """
        batch_size = check_settings(collection, consistency, batch_size, timeout)
        check_embed(embed)
        one_of("metric", metric, get_args(Metric))
        gallery = as_embeddings("embeddings", embeddings, unit=metric == "cosine")
        rows = len(gallery)
        given = np.arange(rows) if ids is None else ids
        of_strings = isinstance(given, np.ndarray) and given.dtype.kind == "U"
        checked = check_milvus_ids(given, kind="string" if of_strings else None)
        check_count(checked, rows)
        new = check_attributes(attributes, rows, {})
        check_fingerprint(model_fingerprint)
        if not isinstance(index_type, str) or not index_type:
            raise ValueError(
                "`index_type` must be Milvus' name of an index. "
                f"Received: {index_type!r}."
            )
        if index_parameters is None:
            index_parameters = _INDEX_PARAMETERS.get(index_type, {})
        if search_parameters is None:
            search_parameters = _SEARCH_PARAMETERS.get(index_type, {})
        facts = Facts(
            kind_of(checked),
            gallery.shape[1],
            metric,
            model_fingerprint,
            consistency,
            index_type,
            settings("index_parameters", index_parameters),
            settings("search_parameters", search_parameters),
        )
        store = build_store(
            (uri, token, database),
            collection,
            facts,
            {name: kind for name, (kind, _) in new.items()},
            make_rows(checked, gallery, attributes_of_rows(new, rows)),
            batch_size,
            timeout,
        )
        return cls(store, uri, database, embed)

    @classmethod
    def connect(
        cls,
        uri: str,
        collection: str,
        *,
        token: str | None = None,
        database: str = "",
        dimension: int | None = None,
        model_fingerprint: str | None = None,
        embed: Embed | None = None,
        search_parameters: Mapping[str, Any] | None = None,
        consistency: str | None = None,
        batch_size: int = 5_000,
        timeout: float = 60.0,
    ) -> Self:
        """Open a collection that `build` has made.

        Args:
            uri: As in `build`.
            collection: Its name.
            token: `"user:password"` or an API key. Default: the environment variable
                MILVUS_TOKEN, or none.
            database: The database of the cluster that it is in. Default: Milvus' own.
            dimension: If given, a collection of another dimension is rejected.
            model_fingerprint: That of the model that will embed the queries. If given,
                a collection of another model's embeddings is rejected.
            embed: See `Index`.
            search_parameters: What to search with. Default: those recorded by `build`.
            consistency: As in `build`. Default: that of `build`.
            batch_size: As in `build`.
            timeout: Seconds to wait for each answer of the server, above 0.

        Returns:
            The index.

        Raises:
            IndexFileError: The collection or the path does not exist, `build` has not
                made it, or it is of another dimension or model.
            ValueError: A setting is not as stated above.
            ImportError: pymilvus, or for a path milvus-lite, is not installed.
            LockedError: Another process has the path open.
            ConnectionError: The server does not answer, or refuses the token.
        """
        batch_size = check_settings(
            collection, consistency or "Strong", batch_size, timeout
        )
        check_load(model_fingerprint, embed)
        if search_parameters is not None:
            search_parameters = settings("search_parameters", search_parameters)
        store = open_store(
            (uri, token, database),
            collection,
            dimension=dimension,
            model_fingerprint=model_fingerprint,
            search_parameters=search_parameters,
            consistency=consistency,
            batch_size=batch_size,
            timeout=timeout,
        )
        return cls(store, uri, database, embed)

    # Changes

    def add(
        self,
        embeddings: ArrayLike,
        ids: Ids,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """See `Index.add`, and `MilvusIndex` for failures of the server."""
        gallery = self._checked_rows("embeddings", embeddings)
        checked = check_milvus_ids(ids, kind=self._facts.ids)
        check_count(checked, len(gallery))
        with self._writing:
            new = self._checked_attributes(attributes, len(gallery))
            rows = make_rows(checked, gallery, attributes_of_rows(new, len(gallery)))
            there = self._store.read(checked)
            if there:
                raise ValueError(
                    "`ids` must not be in the index already. "
                    f"Received: {next(iter(there))!r}. Use `update`."
                )
            self._declare(new)
            self._store.add(rows)

    def update(
        self,
        ids: Ids,
        embeddings: ArrayLike | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """See `Index.update`, and `MilvusIndex` for failures of the server."""
        if embeddings is None and attributes is None:
            raise ValueError(
                "`update` must be given `embeddings` or `attributes` to replace."
            )
        checked = check_milvus_ids(ids, kind=self._facts.ids)
        gallery = None
        if embeddings is not None:
            gallery = self._checked_rows("embeddings", embeddings)
            check_count(checked, len(gallery))
        with self._writing:
            new = self._checked_attributes(attributes, len(checked))
            old = self._items(checked)
            merged: list[dict[str, Scalar | None]] = [
                {**before, **given}
                for before, given in zip(
                    old.attributes, attributes_of_rows(new, len(checked)), strict=True
                )
            ]
            rows = make_rows(
                checked, old.embeddings if gallery is None else gallery, merged
            )
            self._declare(new)
            self._store.replace(rows, make_rows(*old))

    def remove(self, ids: Ids) -> None:
        """See `Index.remove`, and `MilvusIndex` for failures of the server."""
        checked = check_milvus_ids(ids, kind=self._facts.ids)
        with self._writing:
            _refuse_missing(checked, self._store.read(checked))
            self._store.delete(checked)

    def _declare(self, new: Checked) -> None:
        kinds = {
            name: kind for name, (kind, _) in new.items() if name not in self._kinds
        }
        store = self._store
        declare(store.client, store.collection, kinds, store.timeout)
        self._kinds = {**self._kinds, **kinds}

    def _read_kinds(self) -> None:
        store = self._store
        self._kinds = kinds_of(store.client, store.collection, store.timeout)

    def _checked_rows(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        checked = as_embeddings(name, rows, unit=self.metric == "cosine")
        return of_dimension(name, checked, self.dimension)

    def _checked_attributes(
        self, attributes: Mapping[str, Sequence[Any]] | None, rows: int
    ) -> Checked:
        if attributes:  # another client may have declared some
            self._read_kinds()
        return check_attributes(attributes, rows, self._kinds)

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
        checked = self._checked_rows("queries", queries)
        k = whole("k", k)
        expression = self._expression(where)
        banned = None
        if exclude is not None:
            out = check_exclude(exclude, len(checked), self._facts.ids)
            if isinstance(out, list):
                banned = out
            else:
                expression = without_ids(expression, out.tolist())
        if not len(checked):
            k = min(k, self._store.count(expression))
        return nearest(self._store, expression, checked, k, banned)

    def _expression(self, where: Where | None) -> str | bool:
        if where is None:
            return True
        if isinstance(where, Mapping) and not where.keys() <= self._kinds.keys():
            self._read_kinds()
        return expression_of(where, self._kinds)

    # What it holds

    @property
    def ids(self) -> NDArray[Any]:
        """See `Index.ids`."""
        found = np.array(
            list(self._store.ids()), np.int64 if self._facts.ids == "integer" else str
        )
        # Without repetition, even if another program has inserted one again.
        return np.unique(found)

    def get(self, ids: Ids) -> Items:
        """See `Index.get`."""
        return self._items(check_milvus_ids(ids, kind=self._facts.ids, may_repeat=True))

    def _items(self, ids: NDArray[Any]) -> Items:
        rows = self._store.read(ids, [ID, EMBEDDING, ATTRIBUTES])
        _refuse_missing(ids, rows)
        embeddings = np.empty((len(ids), self.dimension), np.float32)
        attributes = []
        for place, name in enumerate(ids.tolist()):
            embeddings[place] = rows[name][EMBEDDING]
            attributes.append(attributes_of(rows[name]))
        if not set().union(*attributes) <= self._kinds.keys():
            self._read_kinds()  # another client has declared some
        kinds = self._kinds
        return Items(ids, embeddings, [of_kinds(own, kinds) for own in attributes])

    def count(self, where: Where | None = None) -> int:
        """See `Index.count`."""
        return self._store.count(self._expression(where))

    def __contains__(self, item: object) -> bool:
        if isinstance(item, bool) or not isinstance(item, str | int | np.integer):
            return False
        try:
            ids = check_milvus_ids(cast(Ids, [item]), kind=self._facts.ids)
        except ValueError:  # of the other kind, or none that Milvus can have
            return False
        return bool(self._store.read(ids))

    @property
    def dimension(self) -> int:
        """The number of columns of the gallery and of queries."""
        return self._facts.dimension

    @property
    def metric(self) -> Metric:
        """`"cosine"` or `"dot_product"`."""
        return self._facts.metric

    @property
    def model_fingerprint(self) -> str:
        """The fingerprint given to `build`, or an empty string."""
        return self._facts.model_fingerprint

    def stats(self) -> IndexStats:
        """See `Index.stats`.

        `details` has the address, without user and password, the collection and the
        settings.
        """
        self._read_kinds()
        return IndexStats(
            type(self).__name__,
            self.count(),
            self.dimension,
            self.metric,
            self.model_fingerprint,
            self._kinds,
            {
                "uri": self._uri,
                "database": self._database,
                "collection": self._store.collection,
                "index_type": self._facts.index_type,
                "index_parameters": dict(self._facts.index_parameters),
                "search_parameters": dict(self._store.search_parameters),
                "consistency": self._store.consistency,
                "server": str(self._store.client.get_server_version()),
            },
        )

    # Files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write where the collection is, so that `load` can connect to it again.

        The items stay in Milvus, which writes every change to its own disks: this is
        not a backup, and a later `load` finds them as they are then. The folder may be
        moved and copied. It holds the address without user and password, and no token.
        The path of milvus-lite is written as an absolute path.

        Raises:
            IndexFileError: The folder holds something other than an index.
            OSError: The file cannot be written.
        """
        description = {
            "class": type(self).__name__,
            "uri": self._uri,
            "database": self._database,
            "collection": self._store.collection,
            "dimension": self.dimension,
            "metric": self.metric,
            "model_fingerprint": self.model_fingerprint,
        }
        write_version(folder, description, lambda data: None)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        model_fingerprint: str | None = None,
        embed: Embed | None = None,
        token: str | None = None,
    ) -> Self:
        """Connect to the collection that `save` has recorded.

        Args:
            folder: What `save` has written, also after a move or as a copy.
            model_fingerprint: As in `connect`.
            embed: See `Index`.
            token: As in `connect`.

        Raises:
            IndexFileError: The folder, or the path of milvus-lite, does not exist, or
                the collection is no longer the one that was saved: it is of another
                dimension, metric or model.
            ImportError: As `connect`, as are the other errors.
        """
        check_load(model_fingerprint, embed)
        return read_version(
            folder,
            lambda manifest, data: cls._restore(
                manifest, data, model_fingerprint, embed, token
            ),
        )

    @classmethod
    def _restore(
        cls,
        manifest: dict[str, Any],
        data: Path,
        model_fingerprint: str | None,
        embed: Embed | None,
        token: str | None = None,
    ) -> Self:
        if manifest["class"] != cls.__name__:
            raise IndexFileError(
                f"`folder` must hold a {cls.__name__}. Received: {data.parent}, which "
                f"holds a {manifest['class']}. Use `load_index`."
            )
        index = cls.connect(
            manifest["uri"],
            manifest["collection"],
            token=token,
            database=manifest["database"],
            model_fingerprint=model_fingerprint,
            embed=embed,
        )
        for name in ("dimension", "metric", "model_fingerprint"):
            if getattr(index, name) != manifest[name]:
                index.close()
                raise IndexFileError(
                    f"The collection {manifest['collection']!r} is not the one that "
                    f"was saved: its {name} must be {manifest[name]!r}. "
                    f"Received: {getattr(index, name)!r}."
                )
        return index

    def close(self) -> None:
        """See `Index.close`."""
        disconnect(self._store.client)


def _refuse_missing(ids: NDArray[Any], rows: Mapping[str | int, Any]) -> None:
    for name in ids.tolist():
        if name not in rows:
            raise KeyError(f"`ids` must be in the index. Received: {name!r}.")
