"""Search in Milvus: send the requests, and return the answers as arrays.

Milvus looks at part of a collection, as its index type has it, and where that holds
fewer items than were asked for, it returns these alone. As an answer for several
queries is as wide as the shortest one, one such query would take hits from all the
others. So it is asked again: more widely, and at last for the items themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index._interface import SearchResult
from tfdml.index.milvus._collection import EMBEDDING
from tfdml.index.milvus._filters import ID, without_ids
from tfdml.index.milvus._store import Store
from tfdml.index.rows import leaving_out_alike
from tfdml.neighbors import ExactSearcher

_MOST = 16_384  # hits of one query
_HITS = 200_000  # in one answer, of all its queries

_Hits = Sequence[Mapping[str, Any]]
"""Items that were found for a query, the best first: their id and distance."""


def nearest(
    store: Store,
    expression: str | bool,
    queries: NDArray[np.float32],
    k: int,
    excluded: NDArray[Any] | list[NDArray[Any]] | None,
) -> SearchResult:
    """Find the nearest items of every query.

    Args:
        store: The collection.
        expression: What holds of the items that may be returned.
        queries: Checked queries `[Q, D]`.
        k: How many items to return, at most.
        excluded: The ids that no query may return, or a list with those of each query;
            None for none.

    Returns:
        Ids and scores `[Q, k]`; fewer columns where there are fewer for one of the
        queries, or where Milvus does not find more in a collection that is too large to
        be read.

    Raises:
        ValueError: Milvus does not return so many, or a score is not finite.
    """
    if isinstance(excluded, np.ndarray):
        expression, excluded = without_ids(expression, excluded.tolist()), None
    if not len(queries):
        k = min(k, store.count(expression))
    own = [set(ids.tolist()) for ids in excluded or []] or [set()] * len(queries)
    most = max(map(len, own), default=0)
    if k + most > _MOST:
        raise ValueError(
            f"`k` plus the ids excluded for one query alone must be at most {_MOST}, "
            f"which is what Milvus returns. Received: k={k} and {most} ids."
        )
    found: list[_Hits] = [()] * len(queries)
    left = list(range(len(queries)))
    count = None
    for widely in (False, True):
        for query, hits in _ask(store, expression, queries, k, own, left, widely):
            found[query] = hits
        left = [q for q in left if len(_allowed(found[q], own[q], k)) < k]
        if left and count is None:
            count = store.count(expression)
        left = [query for query in left if len(found[query]) < (count or 0)]
        if not left:
            break
    if left and count and count <= store.limits.compared:
        limits = {query: k + len(own[query]) for query in left}
        for query, hits in _compare(store, expression, queries, limits):
            found[query] = hits
    allowed = [_allowed(*of_one, k) for of_one in zip(found, own, strict=True)]
    return _as_arrays(allowed, k, store.facts.ids)


def _ask(
    store: Store,
    expression: str | bool,
    queries: NDArray[np.float32],
    k: int,
    own: Sequence[set[Any]],
    numbers: Sequence[int],
    widely: bool,
) -> Iterator[tuple[int, _Hits]]:
    """Ask Milvus for the hits of some queries, those to be left out among them.

    One query that leaves out many does not have all the others ask for more.
    """
    counts = np.array([len(own[query]) for query in numbers], np.int64)
    for places, most in leaving_out_alike(counts):
        limit = k + most
        step = max(1, min(store.limits.queries, _HITS // limit))
        for first in range(0, len(places), step):
            part = [numbers[place] for place in places[first : first + step]]
            answers = store.search(expression, queries[part], limit, widely=widely)
            yield from zip(part, answers, strict=True)


def _allowed(hits: _Hits, out: set[Any], k: int) -> _Hits:
    return [hit for hit in hits if hit[ID] not in out][:k]


def _compare(
    store: Store,
    expression: str | bool,
    queries: NDArray[np.float32],
    limits: Mapping[int, int],
) -> Iterator[tuple[int, _Hits]]:
    """Compare some queries with all items of which an expression holds.

    Args:
        store: The collection.
        expression: The expression.
        queries: All queries.
        limits: How many hits to return, by the number of the query.
    """
    numbers = list(limits)
    best: dict[int, list[Mapping[str, Any]]] = {query: [] for query in numbers}
    for rows in store.pages(expression, [ID, EMBEDDING]):
        page = np.array([row[EMBEDDING] for row in rows], np.float32)
        searcher = ExactSearcher(page, store.facts.metric, zero_rows=True)
        most = min(len(page), max(limits.values()))
        places, scores = searcher.nearest(queries[numbers], most)
        for query, its_places, its_scores in zip(numbers, places, scores, strict=True):
            best[query] += [
                {ID: rows[place][ID], "distance": score}
                for place, score in zip(
                    its_places.tolist(), its_scores.tolist(), strict=True
                )
            ]
            best[query].sort(key=lambda hit: -hit["distance"])
            del best[query][limits[query] :]
    yield from best.items()


def _as_arrays(found: Sequence[_Hits], k: int, kind: str) -> SearchResult:
    width = min(map(len, found), default=k)
    ids = [[hit[ID] for hit in hits[:width]] for hits in found]
    scores = [[hit["distance"] for hit in hits[:width]] for hits in found]
    shape = len(found), width
    result = SearchResult(
        np.array(ids, np.str_ if kind == "string" else np.int64).reshape(shape),
        np.array(scores, np.float32).reshape(shape),
    )
    if not np.isfinite(result.scores).all():
        raise ValueError(
            "Milvus returned a score that is not finite: a dot product is too large "
            "for float32, or another program has written a NaN to the collection. "
            "Scale the embeddings down."
        )
    return result
