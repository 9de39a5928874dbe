"""Search a snapshot: its first rows by their searcher, the tail by comparing.

Searchers know neither of removed rows nor of filters. So they are asked for more than
is wanted; where only few rows may be returned, these are compared with instead.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.local._limits import Limits
from tfdml.index.rows import RowSearcher, Snapshot, leaving_out_alike

Found = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Rows and scores `[Q, k]`, best first; where there are fewer, -1 and -inf follow."""


def nearest(
    state: Snapshot,
    queries: NDArray[np.float32],
    k: int,
    passed: NDArray[np.bool_] | None,
    banned: NDArray[np.int64] | None,
    limits: Limits,
    **known: NDArray[np.float64],
) -> Found:
    """Find the nearest rows that may be returned.

    Args:
        state: The gallery.
        queries: Checked queries `[Q, D]`.
        k: How many rows to return, at most.
        passed: Which rows any query may return, `[N]`; None for all.
        banned: Pairs of a query and a row that it must not return, `[2, P]`, none
            twice, the queries in ascending order. None for none.
        limits: When rows are compared with instead of searched for.
        known: What the searcher of the base need not work out again.

    Returns:
        Rows and scores `[Q, k]`, best first; fewer columns where fewer rows may be
        returned to one of the queries.
    """
    if passed is None:
        allowed, count = state.live, state.count
    else:
        allowed = state.live & passed
        count = int(np.count_nonzero(allowed))
    k = min(k, count)
    if not count or not len(queries):
        shape = len(queries), k
        return np.empty(shape, np.int64), np.empty(shape, np.float32)
    if banned is None:
        if count == state.base == state.rows:
            found: Found = state.searcher.nearest(queries, k, **known)
            return found
        banned = np.empty((2, 0), np.int64)
    parts = [
        _of_part(state, part, queries, k, allowed, banned, limits)
        for part in (slice(0, state.base), slice(state.base, state.rows))
        if allowed[part].any()
    ]
    rows, scores = _best(parts, k)
    width = int((rows >= 0).sum(axis=1).min())
    return rows[:, :width], scores[:, :width]


def _best(parts: Sequence[Found], k: int) -> Found:
    """Return the best of what was found in parts of the gallery, in their order."""
    rows = np.concatenate([part[0] for part in parts], axis=1)
    scores = np.concatenate([part[1] for part in parts], axis=1)
    # Stable: of equal scores, the row that was there first comes first.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, order, axis=1)
    return rows, np.take_along_axis(scores, order, axis=1)


def _of_part(
    state: Snapshot,
    part: slice,
    queries: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_],
    banned: NDArray[np.int64],
    limits: Limits,
) -> Found:
    """Search the base or the tail, of which some row may be returned."""
    own = allowed[part]
    count = int(np.count_nonzero(own))
    banned = _in_range(banned, part.start, part.stop)
    banned = banned[:, allowed[banned[1]]]
    if _are_few(count, len(own), limits):
        rows = part.start + np.flatnonzero(own)
        return _among(state, rows, queries, k, banned, limits)
    is_tail = part.start == state.base
    searcher = state.tail_searcher if is_tail else state.searcher
    reachable = np.minimum(k, count - _counts(banned, len(queries)))

    found = _searched(searcher, part.start, own, queries, k, banned, limits)
    short = _short(found, reachable)
    if len(short):
        its = _of_queries(banned, short)
        found[0][short], found[1][short] = _searched(
            searcher, part.start, own, queries[short], k, its, limits, times=limits.on
        )
        short = _short(found, reachable)
    if len(short):  # all that they may be given is far away
        rows = part.start + np.flatnonzero(own)
        its = _of_queries(banned, short)
        found[0][short], found[1][short] = _among(
            state, rows, queries[short], k, its, limits
        )
    return found


def _are_few(count: int, size: int, limits: Limits) -> bool:
    """Return whether comparing with `count` of `size` rows is the faster way."""
    return count * limits.fewest_share <= size or (
        count <= limits.few_rows and count * limits.few_share <= size
    )


def _short(found: Found, reachable: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the queries that got fewer rows than there are for them."""
    return np.flatnonzero((found[0] >= 0).sum(axis=1) < reachable)


def _among(
    state: Snapshot,
    rows: NDArray[np.int64],
    queries: NDArray[np.float32],
    k: int,
    banned: NDArray[np.int64],
    limits: Limits,
) -> Found:
    """Compare with some rows, in ascending order, not all copied at once."""
    step = max(1, limits.block_numbers // queries.shape[1])
    best: list[Found] = []
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        searcher = RowSearcher(state.embeddings_of(some), state.metric)  # type: ignore[arg-type]
        its = _in_range(banned, some[0], some[-1] + 1)
        every = np.ones(len(some), np.bool_)
        best.append(_searched(searcher, some, every, queries, k, its, limits))
        best = [_best(best, k)]
    return best[0]


def _searched(
    searcher: Any,
    numbers: int | NDArray[np.int64],
    allowed: NDArray[np.bool_],
    queries: NDArray[np.float32],
    k: int,
    banned: NDArray[np.int64],
    limits: Limits,
    *,
    times: int = 1,
) -> Found:
    """Search for so many that most queries get `k` rows that they may return.

    Args:
        searcher: Finds places.
        numbers: The row at each place, or at the first, if those of the others follow.
        allowed: Which places may be returned.
        queries: As in `nearest`.
        k: As in `nearest`.
        banned: As in `nearest`.
        limits: As in `nearest`.
        times: How many times as many to search for.
    """
    size, count = len(allowed), int(np.count_nonzero(allowed))
    wanted = min(k, count)
    left_out = size - count
    rows = np.empty((len(queries), wanted), np.int64)
    scores = np.empty((len(queries), wanted), np.float32)
    for alike, most in leaving_out_alike(_counts(banned, len(queries))):
        fetch = wanted + most
        fetch += min(left_out, 4 + math.ceil(limits.spare * fetch * left_out / count))
        fetch = min(size, times * fetch)
        step = max(1, limits.block_found // fetch)
        for start in range(0, len(alike), step):
            block = alike[start : start + step]
            places, near = searcher.nearest(queries[block], fetch)
            found = numbers + places if isinstance(numbers, int) else numbers[places]
            good = allowed[places] & ~_are_banned(found, _of_queries(banned, block))
            rows[block], scores[block] = _first(found, near, good, wanted)
    return rows, scores


def _counts(banned: NDArray[np.int64], queries: int) -> NDArray[np.int64]:
    """Return how many rows each query must not return."""
    return np.bincount(banned[0], minlength=queries)


def _in_range(banned: NDArray[np.int64], first: int, end: int) -> NDArray[np.int64]:
    """Return the pairs with rows in a range."""
    return banned[:, (banned[1] >= first) & (banned[1] < end)]


def _of_queries(
    banned: NDArray[np.int64], queries: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the pairs of some queries, in ascending order, with new numbers."""
    places = np.minimum(np.searchsorted(queries, banned[0]), len(queries) - 1)
    theirs = queries[places] == banned[0]
    return np.stack([places[theirs], banned[1, theirs]])


def _are_banned(
    rows: NDArray[np.int64], banned: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Mark the rows that are paired with their query."""
    if not banned.size:
        return np.zeros(rows.shape, np.bool_)
    # A row of another query gets another number.
    step = 1 + max(int(rows.max()), int(banned[1].max()))
    shift = step * np.arange(len(rows))[:, None]
    return np.isin(rows + shift, banned[1] + step * banned[0])


def _first(
    rows: NDArray[Any], scores: NDArray[Any], good: NDArray[np.bool_], k: int
) -> Found:
    """Return the first `k` good columns of each row, filled up with -1 and -inf."""
    order = np.argsort(~good, axis=1, kind="stable")[:, :k]
    good = np.take_along_axis(good, order, axis=1)
    rows = np.where(good, np.take_along_axis(rows, order, axis=1), -1)
    scores = np.where(good, np.take_along_axis(scores, order, axis=1), -np.inf)
    return rows.astype(np.int64), scores.astype(np.float32)
