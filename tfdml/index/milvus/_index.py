"""Search a collection in Milvus, for galleries that one machine cannot hold."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import one_of, whole
from tfdml._core.embeddings import as_embeddings
from tfdml.index._checks import (
    check_embed,
    check_fingerprint,
    check_load,
    check_update,
    of_dimension,
)
from tfdml.index._connected import ConnectedIndex
from tfdml.index._filters import Where
from tfdml.index._interface import Embed, IndexStats, Items, Metric, SearchResult
from tfdml.index.milvus._collection import METRICS, Facts
from tfdml.index.milvus._connection import disconnect
from tfdml.index.milvus._content import Content
from tfdml.index.milvus._opening import (
    BATCH_SIZE,
    TIMEOUT,
    build_store,
    check_settings,
    open_store,
    type_and_parameters,
)
from tfdml.index.milvus._rows import rows_of_gallery
from tfdml.index.milvus._store import Store
from tfdml.index.rows import Ids, kind_of
from tfdml.versioned_folder import check_class, read_version


class MilvusIndex(ConnectedIndex):
    """A collection in Milvus: on a cluster by its address, or embedded by a path.

    It answers and raises like the other indexes, with these differences:

    - Milvus searches approximately, depending on the index type. A query that gets
      fewer items than exist is asked again, more widely, and then compared with all
      items that may be returned. If they are more than 100,000, there may be fewer
      columns than `k`. Items of equal score come in any order.
    - `k` plus the ids excluded for one query alone is at most 16,384.
    - `ids` asks for `batch_size` of them at a time, and returns them in ascending
      order. Of items added or removed meanwhile, some may be included.
      `near_duplicates` sends about three requests per batch.
    - Each change is on Milvus' disks when the method returns. With the consistency
      `"Strong"`, the default, every client finds it from then on.
    - Several programs may change a collection, but not the same items at the same
      time: Milvus has no transactions. If two programs add one id at the same moment,
      both succeed, and the later item stays. During a change, searches see part of it.
      If the server fails during `add` or `update`, the change is undone as far as the
      server can be reached; `remove` may have removed some items. A program that is
      killed leaves what it has written.
    - Attributes are keys of one JSON field, of at most 65,535 bytes per item. A filter
      on a large collection is faster with an index on its key, which Milvus can make.
    - Milvus keeps its data itself: `save` writes where they are, and nothing else.

    Errors of the server, other than those stated by `Index`, are both a
    `pymilvus.MilvusException` and a `ConnectionError`.

    A path opens milvus-lite, which serves one process at a time, compares in Python
    and is meant for tests and for a few thousand items.

    Example:
        >>> import tempfile
        >>> from tfdml.index import MilvusIndex
        >>> folder = tempfile.TemporaryDirectory()
        >>> index = MilvusIndex.build(
        ...     [[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]],
        ...     ["right", "up", "between"],
        ...     uri=f"{folder.name}/milvus.db",
        ...     collection="directions",
        ... )
        >>> ids, scores = index.search([[2.0, 0.0]], k=2)
        >>> ids.tolist(), scores.round(3).tolist()
        ([['right', 'between']], [[1.0, 0.6000000238418579]])
        >>> index.close()
        >>> folder.cleanup()
    """

    def __init__(self, store: Store, embed: Embed | None) -> None:
        """Wrap an open collection; use `build` or `connect`."""
        facts = store.facts
        self._dimension = facts.dimension
        self._metric = facts.metric
        self._model_fingerprint = facts.model_fingerprint
        self.embed = embed
        self.notes = {}
        try:
            self._content = Content(store)
        except BaseException:
            disconnect(store.client)  # nobody else has it
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
        batch_size: int = BATCH_SIZE,
        timeout: float = TIMEOUT,
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
        one_of("metric", metric, tuple(METRICS))
        rows, kinds = rows_of_gallery(
            embeddings, ids, attributes, unit=metric == "cosine"
        )
        check_fingerprint(model_fingerprint)
        facts = Facts(
            kind_of(rows.ids),
            rows.embeddings.shape[1],
            metric,
            model_fingerprint,
            consistency,
            *type_and_parameters(index_type, index_parameters, search_parameters),
        )
        store = build_store(
            (uri, token, database), collection, facts, kinds, rows, batch_size, timeout
        )
        return cls(store, embed)

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
        batch_size: int = BATCH_SIZE,
        timeout: float = TIMEOUT,
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
        check_load(model_fingerprint, embed)
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
        return cls(store, embed)

    # Changes

    def add(
        self,
        embeddings: ArrayLike,
        ids: Ids,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """See `Index.add`, and `MilvusIndex` for failures of the server."""
        gallery = self._checked_rows("embeddings", embeddings)
        self._content.add(ids, gallery, attributes)

    def update(
        self,
        ids: Ids,
        embeddings: ArrayLike | None = None,
        attributes: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """See `Index.update`, and `MilvusIndex` for failures of the server."""
        check_update(embeddings, attributes)
        gallery = None
        if embeddings is not None:
            gallery = self._checked_rows("embeddings", embeddings)
        self._content.update(ids, gallery, attributes)

    def remove(self, ids: Ids) -> None:
        """See `Index.remove`, and `MilvusIndex` for failures of the server."""
        self._content.remove(ids)

    def _checked_rows(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        checked = as_embeddings(name, rows, unit=self._metric == "cosine")
        return of_dimension(name, checked, self._dimension)

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
        return self._content.search(checked, whole("k", k), where, exclude)

    # What it holds

    @property
    def ids(self) -> NDArray[Any]:
        """See `Index.ids`; in ascending order."""
        return self._content.ids()

    def ids_where(self, where: Where) -> NDArray[Any]:
        """See `Index.ids_where`; in ascending order."""
        return self._content.ids(where)

    def get(self, ids: Ids) -> Items:
        """See `Index.get`."""
        return self._content.get(ids)

    def count(self, where: Where | None = None) -> int:
        """See `Index.count`."""
        return self._content.count(where)

    def __contains__(self, item: object) -> bool:
        return self._content.holds(item)

    def stats(self) -> IndexStats:
        """See `Index.stats`.

        `details` has the address, without user and password, the collection, the
        settings, and the folder of the index, if it has one.
        """
        self._content.read_kinds()
        return IndexStats(
            type(self).__name__,
            self.count(),
            self._dimension,
            self._metric,
            self._model_fingerprint,
            self._content.kinds,
            self._content.store.details() | self._folder_details(),
        )

    # Files

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
        check_class(manifest, data.parent, [cls.__name__])
        store = open_store(
            (manifest["uri"], token, manifest["database"]),
            manifest["collection"],
            model_fingerprint=model_fingerprint,
            saved=manifest,
        )
        index = cls(store, embed)
        index._opened(manifest, data)
        return index

    def _place(self) -> Mapping[str, str]:
        return self._content.store.place()

    def drop(self) -> None:
        """Delete the collection with all its items from Milvus, and close the index.

        A folder that it was saved to leads nowhere from then on.
        """
        store = self._content.store
        store.client.drop_collection(store.collection, timeout=store.timeout)
        self.close()

    def close(self) -> None:
        """See `Index.close`."""
        disconnect(self._content.store.client)
