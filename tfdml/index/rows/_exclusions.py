"""Exclude ids from a search: for all queries alike, or for each one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows._ids import Ids, read_ids
from tfdml.messages import shown

_ALIKE = 64  # a difference below this is not worth a search of its own


def check_exclude(
    exclude: Ids | Sequence[Ids], queries: int, kind: str | None
) -> NDArray[Any] | list[NDArray[Any]]:
    """Check `exclude` of `Index.search`.

    Args:
        exclude: Ids, or a sequence of ids for each query. Sets are allowed.
        queries: How many queries there are.
        kind: The kind of the index's ids, or None for either.

    Returns:
        The ids of all queries, or a list with those of each query.

    Raises:
        ValueError: It is neither.
    """
    values: Any = exclude.tolist() if isinstance(exclude, np.ndarray) else exclude
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(
            f"`exclude` must be a sequence of ids, or one for each query. Received: "
            f"{shown(values)}. Pass one id as [{shown(values)}]."
        )
    values = list(values)
    nested = [
        isinstance(v, Iterable) and not isinstance(v, str | bytes) for v in values
    ]
    if not any(nested):
        return _checked(values, kind)
    if not all(nested):
        raise ValueError(
            "`exclude` must hold ids, or a sequence of ids for each query. "
            "Received: both."
        )
    if len(values) != queries:
        raise ValueError(
            f"`exclude` must hold one sequence of ids for each of the {queries} "
            f"queries. Received: {len(values)}."
        )
    return [_checked(list(ids), kind) for ids in values]


def _checked(ids: list[Any], kind: str | None) -> NDArray[Any]:
    return read_ids(ids, kind=kind, name="exclude", may_repeat=True)


def banned_rows(rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the rows of each query as one array, of pairs of query and row.

    It takes no more room where one query has many.

    Args:
        rows: The rows of each query, -1 for an id that is not there.

    Returns:
        int64 `[2, P]`: queries in ascending order, and their rows, without repetition.
    """
    there = [np.unique(own[own >= 0]) for own in rows]
    counts = np.array([len(own) for own in there], np.int64)
    none = np.empty(0, np.int64)
    queries = np.repeat(np.arange(len(there)), counts)
    return np.stack([queries, np.concatenate([none, *there])])


def leaving_out_alike(
    counts: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield queries that leave out about as many rows, and the most of one of them.

    So a query that leaves out many does not make all the others search for more.

    Args:
        counts: How many each query must leave out, `[Q]`.
    """
    sizes = np.frexp(counts // _ALIKE)[1]
    for size in np.unique(sizes):
        queries = np.flatnonzero(sizes == size)
        yield queries, int(counts[queries].max())
