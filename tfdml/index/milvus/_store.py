"""Send the requests of an index to a Milvus collection, in batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.milvus._collection import EMBEDDING, METRICS, Facts
from tfdml.index.milvus._filters import ATTRIBUTES, ID, ids_after, ids_expression
from tfdml.index.milvus._rows import (
    LONGEST_ATTRIBUTES,
    Rows,
    batches,
    size_of_ids,
)

_MOST_ROWS = 16_384  # in one answer, where they are counted
# Milvus refuses, or finds little, where these are below the number of hits.
_AT_LEAST_HITS = {
    "HNSW": "ef",
    "HNSW_SQ": "ef",
    "HNSW_PQ": "ef",
    "HNSW_PRQ": "ef",
    "SCANN": "reorder_k",
    "DISKANN": "search_list",
}
_WIDELY = 10  # times the hits, in these,
_MOST_WIDELY = 32_768  # and at most so many, which every version takes
_LISTS = 128  # Milvus' default
_MOST_ON_GPU = 2_048  # lists that are looked into


@dataclass(frozen=True)
class MilvusLimits:
    """How much goes into one request or answer.

    Attributes:
        bytes_written: Bytes of a request. Milvus takes 64 MiB; the encoding needs more
            than the values do.
        bytes_read: Bytes of an answer, where all attributes are as long as they may be.
            Milvus gives 100 MiB.
        queries: Queries of one search.
        compared: Items that are read to be compared with here, where Milvus does not
            find enough.
    """

    bytes_written: int = 2**24
    bytes_read: int = 5 * 2**24
    queries: int = 1_000
    compared: int = 100_000


@dataclass(frozen=True)
class Store:
    """An open collection.

    Args:
        client: Of pymilvus.
        collection: The name.
        facts: What the collection is.
        search_parameters: What it is searched with.
        consistency: That of searches; writes are checked with "Strong".
        batch_size: Most items in one request.
        timeout: Seconds to wait for an answer.
        uri: Where Milvus is, without user and password.
        database: The database of the cluster.
        limits: How much goes into one request.
    """

    client: Any
    collection: str
    facts: Facts
    search_parameters: Mapping[str, Any]
    consistency: str
    batch_size: int
    timeout: float
    uri: str
    database: str
    limits: MilvusLimits = MilvusLimits()

    def place(self) -> dict[str, str]:
        """Return where the collection is."""
        return {
            "uri": self.uri,
            "database": self.database,
            "collection": self.collection,
        }

    def details(self) -> dict[str, Any]:
        """Return where the collection is, and its settings, in JSON types."""
        return {
            **self.place(),
            "engine": "milvus",
            "index_type": self.facts.index_type,
            "index_parameters": dict(self.facts.index_parameters),
            "search_parameters": dict(self.search_parameters),
            "consistency": self.consistency,
            "server": str(self.client.get_server_version()),
        }

    def read(
        self, ids: NDArray[Any], fields: Sequence[str] = (ID,)
    ) -> dict[str | int, dict[str, Any]]:
        """Return rows by their ids, as they are now; without those not there."""
        sizes = size_of_ids(ids)
        if EMBEDDING in fields:
            sizes += 4 * self.facts.dimension
        most = self.limits.bytes_written
        if ATTRIBUTES in fields:  # nobody knows how long they are
            sizes += LONGEST_ATTRIBUTES
            most = self.limits.bytes_read
        found = {}
        for part in batches(sizes, self.batch_size, most):
            rows = self.client.query(
                self.collection,
                filter=ids_expression(ids[part].tolist()),
                output_fields=list(fields),
                consistency_level="Strong",
                timeout=self.timeout,
            )
            found.update({row[ID]: row for row in rows})
        return found

    def ids(self, expression: str | bool) -> Iterator[str | int]:
        """Yield the ids of the items that match, in ascending order."""
        for rows in self.pages(expression, [ID]):
            for row in rows:
                yield row[ID]

    def pages(
        self, expression: str | bool, fields: Sequence[str]
    ) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the items that match an expression, in ascending order of their ids."""
        if expression is False:
            return
        conditions = [] if expression is True else [expression]
        size = 4 * self.facts.dimension if EMBEDDING in fields else 1
        limit = max(
            1, min(self.batch_size, _MOST_ROWS, self.limits.bytes_written // size)
        )
        # pymilvus' own iterator leaves out the id "", and fails on quotes in ids.
        after: list[str] = []
        while True:
            rows = self.client.query(
                self.collection,
                filter=" and ".join(f"({one})" for one in conditions + after),
                output_fields=list(fields),
                limit=limit,
                iterator="True",  # sorts by id
                reduce_stop_for_best="True",  # without holes, if with fewer rows
                consistency_level="Strong",
                timeout=self.timeout,
            )
            if not rows:
                return
            yield rows
            after = [ids_after(rows[-1][ID])]

    def _batches(self, sizes: NDArray[np.int64]) -> Iterator[slice]:
        return batches(sizes, self.batch_size, self.limits.bytes_written)

    def fill(self, rows: Rows) -> None:
        """Write the items of a new collection."""
        for part in self._batches(rows.sizes):
            self.client.insert(self.collection, rows.values(part), timeout=self.timeout)

    def add(self, rows: Rows) -> None:
        """Write new items; on an error, remove those that were written."""
        written = 0
        try:
            for part in self._batches(rows.sizes):
                written = part.stop
                self._upsert(rows, part)
        except BaseException as error:
            _undo(error, lambda: self.delete(rows.ids[:written]))
            raise

    def replace(self, rows: Rows, old: Rows) -> None:
        """Overwrite existing items; on an error, write the old ones again."""
        written = 0
        try:
            for part in self._batches(rows.sizes):
                written = part.stop
                self._upsert(rows, part)
        except BaseException as error:
            _undo(error, lambda: self._write_again(old, written))
            raise

    def _write_again(self, old: Rows, written: int) -> None:
        for part in self._batches(old.sizes[:written]):
            self._upsert(old, part)

    def _upsert(self, rows: Rows, part: slice) -> None:
        # Never `insert`: Milvus lets an id be there twice, and pymilvus sends a request
        # again whose answer was lost.
        self.client.upsert(self.collection, rows.values(part), timeout=self.timeout)

    def delete(self, ids: NDArray[Any]) -> None:
        """Remove items."""
        for part in self._batches(size_of_ids(ids)):
            self.client.delete(
                self.collection,
                filter=ids_expression(ids[part].tolist()),
                timeout=self.timeout,
            )

    def count(self, expression: str | bool, *, consistency: str | None = None) -> int:
        """Return of how many items an expression holds."""
        if expression is False:
            return 0
        rows = self.client.query(
            self.collection,
            filter="" if expression is True else expression,
            output_fields=["count(*)"],
            consistency_level=consistency or self.consistency,
            timeout=self.timeout,
        )
        return int(rows[0]["count(*)"])

    def search(
        self,
        expression: str | bool,
        queries: NDArray[np.float32],
        hits: int,
        *,
        widely: bool = False,
    ) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the nearest items of which an expression holds.

        Args:
            expression: The expression.
            queries: Checked queries `[Q, D]`.
            hits: How many items of each.
            widely: Whether to look at as much of the index as is possible.
        """
        if expression is False:
            return [[] for _ in queries]
        answers: Sequence[Sequence[Mapping[str, Any]]] = self.client.search(
            self.collection,
            data=list(queries),
            anns_field=EMBEDDING,
            filter="" if expression is True else expression,
            limit=hits,
            output_fields=[ID],
            search_params={
                "metric_type": METRICS[self.facts.metric],
                "params": self._parameters(hits, widely),
            },
            consistency_level=self.consistency,
            timeout=self.timeout,
        )
        return answers

    def _parameters(self, hits: int, widely: bool) -> dict[str, Any]:
        """Return what to search with."""
        parameters = dict(self.search_parameters)
        kind = self.facts.index_type
        name = _AT_LEAST_HITS.get(kind)
        if name is not None and (widely or name in parameters):
            least = min(hits * _WIDELY, _MOST_WIDELY) if widely else hits
            parameters[name] = max(parameters.get(name, 0), least)
        if widely and ("IVF" in kind or kind == "SCANN"):
            lists = self.facts.index_parameters.get("nlist", _LISTS)
            on_gpu = kind.startswith("GPU")
            parameters["nprobe"] = min(lists, _MOST_ON_GPU) if on_gpu else lists
        return parameters


def _undo(error: BaseException, undo: Callable[[], None]) -> None:
    """Undo half a change; if that fails too, add it to the error."""
    try:
        undo()
    except Exception as second:
        error.add_note(
            "The items that were written could not be restored either: some of them "
            f"are changed, the others are not. {type(second).__name__}: {second}"
        )
