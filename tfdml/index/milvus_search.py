"""One search in Milvus: requests that it takes, answers as arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.interface import SearchResult
from tfdml.index.milvus_filters import ID

__all__ = ["Ask", "nearest"]

_MOST = 16_384  # hits of one query
_HITS = 200_000  # in one answer, of all its queries
_QUERIES = 1_000

Ask = Callable[[NDArray[np.float32], int], Sequence[Sequence[Mapping[str, Any]]]]
"""Sends queries, and returns so many hits of each: their id and distance."""


def nearest(
    ask: Ask,
    queries: NDArray[np.float32],
    k: int,
    banned: Sequence[NDArray[Any]] | None,
    kind: str,
) -> SearchResult:
    """Find the nearest items of every query.

    Args:
        ask: Asks Milvus.
        queries: Checked queries `[Q, D]`.
        k: How many items to return, at most.
        banned: The ids that each query must not return, a list a query; None for none.
        kind: That of the ids.

    Returns:
        Ids and scores `[Q, k]`; fewer columns where Milvus has found fewer for one of
        the queries.

    Raises:
        ValueError: Milvus does not return so many, or a score is not finite.
    """
    own = [set(ids.tolist()) for ids in banned or []] or [set()] * len(queries)
    most = max(map(len, own), default=0)
    limit = k + most
    if limit > _MOST:
        raise ValueError(
            f"`k`, with the ids to exclude from one query alone, must be at most "
            f"{_MOST}, what Milvus returns. Received: k={k} and {most} ids."
        )
    found: list[list[Mapping[str, Any]]] = []
    step = max(1, min(_QUERIES, _HITS // max(1, limit)))
    for first in range(0, len(queries), step):
        answers = ask(queries[first : first + step], limit)
        for hits, out in zip(answers, own[first : first + step], strict=True):
            found.append([hit for hit in hits if hit[ID] not in out][:k])
    width = min(map(len, found), default=k)
    ids = [[hit[ID] for hit in hits[:width]] for hits in found]
    scores = [[hit["distance"] for hit in hits[:width]] for hits in found]
    shape = len(queries), width
    result = SearchResult(
        np.array(ids, np.str_ if kind == "string" else np.int64).reshape(shape),
        np.array(scores, np.float32).reshape(shape),
    )
    if not np.isfinite(result.scores).all():
        raise ValueError(
            "`queries` must not have a dot product with an item that is too large for "
            "float32, and the collection must not have a NaN that another program "
            "wrote. Milvus returned a score that is not finite."
        )
    return result
