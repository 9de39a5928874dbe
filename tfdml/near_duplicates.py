"""Near-duplicates: items of a gallery that are nearly the same, and their groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml.arguments import finite, whole
from tfdml.index.attributes import Columns, check_attributes
from tfdml.index.filters import Where, matching
from tfdml.index.ids import IdMap, Ids
from tfdml.index.interface import IndexStats, Items, SearchResult
from tfdml.rows import unit_or_zero

__all__ = ["NearDuplicates", "Pairs", "near_duplicates"]

_AT_ONCE = 1_000  # items that are looked for in one search, as Milvus is asked


class _Gallery(Protocol):
    """What is needed of an index, as `tfdml.index.Index` has it."""

    @property
    def ids(self) -> NDArray[Any]: ...

    def get(self, ids: Ids) -> Items: ...

    def count(self, where: Where | None = None) -> int: ...

    def stats(self) -> IndexStats: ...

    def search(
        self, queries: ArrayLike, k: int = 10, *, where: Where | None = None
    ) -> SearchResult: ...


class Pairs(NamedTuple):
    """Pairs of items, the most similar first; equal ones in the gallery's order.

    Attributes:
        first: The id of the one that comes first in the gallery, `[P]`.
        second: The id of the other, `[P]`.
        scores: Their cosines or dot products, float32 `[P]`.
    """

    first: NDArray[Any]
    second: NDArray[Any]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class NearDuplicates:
    """What `near_duplicates` found.

    Attributes:
        threshold: From which score on two items are a pair.
        pairs: The pairs.
        groups: Ids of the items that pairs join, directly or through others; the
            largest group first, equally large ones in the order of the gallery. A group
            begins with its medoid, the member whose scores with all the others have the
            highest sum, and goes on with the members nearest to it.
        least_scores: For each group, the lowest score of a member with the medoid. It
            is below `threshold` where only other members lead from one to the other.
        compared: How many items were compared.
        complete: False if two items or more have `neighbors` others or more above the
            threshold. Then pairs among such items may be missing, and what should be
            one group may be several; what is in one group belongs together all the
            same. More `neighbors` find the rest.
    """

    threshold: float
    pairs: Pairs
    groups: list[tuple[Any, ...]]
    least_scores: list[float]
    compared: int
    complete: bool


def near_duplicates(
    index: _Gallery,
    *,
    threshold: float = 0.95,
    neighbors: int = 20,
    where: Where | None = None,
) -> NearDuplicates:
    """Find the pairs of items whose similarity reaches a threshold, and their groups.

    Each item is searched for in the index, and its nearest others that reach the
    threshold are its near-duplicates. On an `ExactIndex` no pair is missed as long as
    the result is `complete`. An approximate index misses what its search misses, but
    a pair only if it misses it from both sides.

    The gallery may change meanwhile: items that go are left out, those that come are
    not looked for. Besides the result, at most `neighbors` pairs an item, memory holds
    all ids, 1,000 queries, and the embeddings of one group, or of several small ones,
    at a time. A `MilvusIndex` is asked for up to 1,000 items in one request: of a
    million items, about 3,000 requests.

    Args:
        index: Any `tfdml.index.Index`. To compare plain embeddings, pass
            `ExactIndex.build(embeddings)`.
        threshold: The least score of a pair, float32. With `"cosine"` from -1 to 1,
            default 0.95; which value means "the same picture" depends on the model. At
            1, rounding hides equal items from approximate search: take 0.9999.
        neighbors: How many others of each item are looked at, at least 1, default 20.
        where: Compare only items whose attributes are as stated, see
            `tfdml.index.filters`. Default: all.

    Returns:
        A `NearDuplicates`; without pairs where the gallery has fewer than two items.

    Raises:
        ValueError: An argument is not as stated above.

    Example:
        >>> from tfdml.index import ExactIndex
        >>> embeddings = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0], [1.0, 0.01]]
        >>> found = near_duplicates(ExactIndex.build(embeddings, ids=list("abcde")))
        >>> found.groups, len(found.pairs.scores), found.complete
        ([('e', 'a', 'c'), ('b', 'd')], 4, True)
    """
    threshold, neighbors = finite("threshold", threshold), whole("neighbors", neighbors)
    stats = index.stats()
    is_cosine = stats.metric == "cosine"
    if is_cosine and not -1 <= threshold <= 1:
        raise ValueError(
            "`threshold` must be from -1 to 1, where the index compares by cosine. "
            f"Received: threshold={threshold}."
        )
    if where is not None:
        index.count(where)  # refuses a filter that does not fit
    ids = index.ids
    rows = IdMap(ids)
    none = np.empty(0, np.int64)
    parts = [_Found(none, none, np.empty(0, np.float32))]
    compared = full = 0
    for items in _batches(index, ids, where, stats.attributes):
        compared += len(items.ids)
        found = index.search(items.embeddings, neighbors + 1, where=where)
        near = rows.rows(found.ids.reshape(-1)).reshape(found.ids.shape)
        own = rows.rows(items.ids)
        above = found.scores >= threshold
        is_other = near != own[:, None]
        # An item crowded out by its equals is not among its own hits: one is too many.
        is_other &= np.cumsum(is_other, axis=1) <= neighbors
        above &= is_other
        full += int(np.count_nonzero(above.sum(axis=1) == neighbors))
        above &= near >= 0  # what came after `ids` was read is not looked for
        query, place = np.nonzero(above)
        parts.append(_Found(own[query], near[query, place], found.scores[above]))
    pairs = _distinct(parts)
    while True:
        try:
            groups, least = _groups(index, ids, pairs, is_cosine)
        except KeyError:  # some have gone
            pairs = _that_stay(index, ids, pairs)
            continue
        return NearDuplicates(
            threshold,
            Pairs(ids[pairs.first], ids[pairs.second], pairs.scores),
            groups,
            least,
            compared,
            full < 2 or compared - 1 <= neighbors,
        )


class _Found(NamedTuple):
    """Pairs as places in the gallery, and their scores."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    scores: NDArray[np.float32]


def _batches(
    index: _Gallery, ids: NDArray[Any], where: Where | None, kinds: Any
) -> Iterator[Items]:
    """Get the items that are still there and as the filter says, some at a time."""
    for start in range(0, len(ids), _AT_ONCE):
        items = _still_there(index, ids[start : start + _AT_ONCE])
        if where is not None:
            passed = _passed(items.attributes, where, kinds)
            attributes = [items.attributes[row] for row in np.flatnonzero(passed)]
            items = Items(items.ids[passed], items.embeddings[passed], attributes)
        if len(items.ids):
            yield items


def _still_there(index: _Gallery, ids: NDArray[Any]) -> Items:
    """Get those of some items that have not gone."""
    try:
        return index.get(ids)
    except KeyError:
        if len(ids) == 1:
            return index.get(ids[:0])
    one, other = (_still_there(index, half) for half in np.array_split(ids, 2))
    return Items(
        np.concatenate([one.ids, other.ids]),
        np.concatenate([one.embeddings, other.embeddings]),
        one.attributes + other.attributes,
    )


def _passed(
    attributes: Sequence[dict[str, Any]], where: Where, kinds: dict[str, str]
) -> NDArray[np.bool_]:
    """Mark the items that a filter lets pass."""
    values = {name: [item.get(name) for item in attributes] for name in kinds}
    checked = check_attributes(values, len(attributes), kinds)
    columns = Columns().with_rows(0, checked, len(attributes))
    return matching(where, columns.view(len(attributes)), len(attributes))


def _distinct(parts: Sequence[_Found]) -> _Found:
    """Join pairs found from either side, the best first."""
    one, other, scores = (np.concatenate(side) for side in zip(*parts, strict=True))
    first, second = np.minimum(one, other), np.maximum(one, other)
    # Rounding may part the scores of both sides: the higher one counts.
    order = np.lexsort((-scores, second, first))
    first, second, scores = first[order], second[order], scores[order]
    is_new = np.ones(len(first), np.bool_)
    is_new[1:] = (np.diff(first) != 0) | (np.diff(second) != 0)
    first, second, scores = first[is_new], second[is_new], scores[is_new]
    order = np.argsort(-scores, kind="stable")
    return _Found(first[order], second[order], scores[order])


def _that_stay(index: _Gallery, ids: NDArray[Any], pairs: _Found) -> _Found:
    """Return the pairs of which neither item was removed."""
    members, places = np.unique(np.stack(pairs[:2]), return_inverse=True)
    there = np.concatenate(
        [
            _still_there(index, ids[members[start : start + _AT_ONCE]]).ids
            for start in range(0, len(members), _AT_ONCE)
        ]
    )
    first, second = np.isin(ids[members], there)[places.reshape(2, -1)]
    both = first & second
    return _Found(pairs.first[both], pairs.second[both], pairs.scores[both])


def _groups(
    index: _Gallery, ids: NDArray[Any], pairs: _Found, is_cosine: bool
) -> tuple[list[tuple[Any, ...]], list[float]]:
    """Return the connected groups of the pairs, and their least scores.

    Raises:
        KeyError: An item is not there any more.
    """
    members, places = np.unique(np.stack(pairs[:2]), return_inverse=True)
    roots = _roots(places.reshape(2, -1), len(members))
    order = np.argsort(roots, kind="stable")
    starts = np.flatnonzero(np.diff(roots[order], prepend=-1))
    parts = np.split(members[order], starts[1:]) if len(members) else []
    parts.sort(key=len, reverse=True)  # stable: the gallery's order among equals
    groups, least = [], []
    for some in _together(parts):
        embeddings = index.get(ids[np.concatenate(some)]).embeddings
        ends = np.cumsum([len(part) for part in some])
        for part, own in zip(some, np.split(embeddings, ends[:-1]), strict=True):
            nearest, score = _from_medoid(own, is_cosine)
            groups.append(tuple(ids[part[nearest]].tolist()))
            least.append(score)
    return groups, least


def _together(
    parts: Sequence[NDArray[np.int64]],
) -> Iterator[list[NDArray[np.int64]]]:
    """Give parts in their order, so many at a time as are few items together."""
    some: list[NDArray[np.int64]] = []
    for part in parts:
        if some and sum(map(len, some)) + len(part) > _AT_ONCE:
            yield some
            some = []
        some.append(part)
    if some:
        yield some


def _roots(ends: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return for each item the lowest one that pairs lead to from it."""
    roots = np.arange(count)
    while True:
        at = roots[ends]
        lowest = at.min(axis=0)
        if (at == lowest).all():
            return roots
        for side in at:
            np.minimum.at(roots, side, lowest)
        while (roots != roots[roots]).any():
            roots = roots[roots]


def _from_medoid(
    embeddings: NDArray[np.float32], is_cosine: bool
) -> tuple[NDArray[np.int64], float]:
    """Return the members by their score with the medoid, and the least such score."""
    rows = unit_or_zero(embeddings) if is_cosine else embeddings
    total = rows.sum(axis=0, dtype=np.float64)
    sums = np.einsum("nd,d->n", rows, total)
    sums -= np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    # Means fit float32, where members of equal sums tie: the first is the medoid.
    medoid = int(np.argmax((sums / len(rows)).astype(np.float32)))
    scores = np.einsum("nd,d->n", rows, rows[medoid].astype(np.float64))
    others = np.delete(np.arange(len(rows)), medoid)
    nearest = others[np.argsort(-scores[others].astype(np.float32), kind="stable")]
    return np.concatenate([[medoid], nearest]), float(scores[nearest[-1]])
