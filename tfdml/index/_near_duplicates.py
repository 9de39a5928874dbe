"""Find near-duplicates: items of a gallery that are nearly equal, and their groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import finite, whole
from tfdml.index._filters import Where, matching
from tfdml.index._interface import IndexStats, Items, SearchResult
from tfdml.index._near_duplicate_groups import Found, among, groups_of
from tfdml.index.rows import Columns, IdMap, Ids, check_attributes

_TIMES = 3  # attempts where items are removed meanwhile


class _Gallery(Protocol):
    """The methods needed of a `tfdml.index.Index`."""

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
    """The result of `near_duplicates`.

    Attributes:
        threshold: The lowest score of a pair.
        pairs: The pairs.
        groups: Ids of items that pairs connect, directly or through others; the largest
            group first, equally large ones in the order of the gallery. A group starts
            with its medoid, the member with the highest sum of scores with all others,
            followed by the members nearest to it.
        least_scores: For each group, the lowest score of a member with the medoid. It
            is below `threshold` if the two are only connected through other members.
        compared: How many items were compared.
        complete: False if at least two items have `neighbors` or more others above the
            threshold, or as many as the search returned, if it returned fewer. Then
            pairs among such items may be missing, and one group may appear as several;
            members of one group belong together nevertheless. With more `neighbors`,
            the rest is found.
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
    batch_size: int = 1_000,
) -> NearDuplicates:
    """Find the pairs of items whose similarity reaches a threshold, and their groups.

    Each item is searched for in the index; its nearest others that reach the threshold
    are its near-duplicates. With an `ExactIndex`, no pair is missed as long as the
    result is `complete`. An approximate index misses what its search misses, but a pair
    only if it is missed from both sides.

    The gallery may change meanwhile: items that are removed are left out, those that
    are added are not searched for. Besides the result, at most `neighbors` pairs per
    item, memory holds all ids, one batch of queries, and the embeddings of one group,
    or of several small ones, at a time.

    Args:
        index: Any `tfdml.index.Index`. To compare plain embeddings, pass
            `ExactIndex.build(embeddings)`.
        threshold: The lowest score of a pair, float32. With `"cosine"` from -1 to 1,
            default 0.95; which value means "the same image" depends on the model. At 1,
            rounding hides equal items from approximate search: use 0.9999. With
            `"squared_euclidean"` at most 0, and to be given: minus the largest squared
            distance of a pair.
        neighbors: How many others are looked at per item, at least 1, default 20.
        where: Compare only items that pass this filter, see `tfdml.index`. Default:
            all.
        batch_size: How many items are searched for at once, at least 1, default 1,000.

    Returns:
        A `NearDuplicates`; without pairs if the gallery has fewer than two items.

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
    batch_size = whole("batch_size", batch_size)
    stats = index.stats()
    if stats.metric == "squared_euclidean" and threshold > 0:
        raise ValueError(
            "`threshold` must be at most 0, where the index compares by squared "
            "Euclidean distance: it is minus the largest distance of a pair. "
            f"Received: threshold={threshold}."
        )
    if stats.metric == "cosine" and not -1 <= threshold <= 1:
        raise ValueError(
            "`threshold` must be from -1 to 1, where the index compares by cosine. "
            f"Received: threshold={threshold}."
        )
    if where is not None:
        index.count(where)  # raises on a filter that does not fit
    ids = index.ids
    rows = IdMap(ids)
    there = _There(index)
    none = np.empty(0, np.int64)
    parts = [Found(none, none, np.empty(0, np.float32))]
    compared = full = 0
    least_seen = neighbors
    for items in _batches(there, ids, batch_size, where, stats.attributes):
        compared += len(items.ids)
        for of_ids, found in _searched(index, items, neighbors + 1, where):
            near = rows.rows(found.ids.reshape(-1)).reshape(found.ids.shape)
            own = rows.rows(of_ids)
            above = found.scores >= threshold
            is_other = near != own[:, None]
            # An item crowded out by its equals is not among its own hits: one too many.
            is_other &= np.cumsum(is_other, axis=1) <= neighbors
            above &= is_other
            seen = is_other.sum(axis=1)
            full += int(np.count_nonzero(above.sum(axis=1) == seen))
            least_seen = min(least_seen, int(seen.min()))
            above &= near >= 0  # added after `ids` was read
            query, place = np.nonzero(above)
            parts.append(Found(own[query], near[query, place], found.scores[above]))
    pairs = _distinct(parts)
    for _ in range(_TIMES):
        groups, gone = groups_of(there.get, ids, pairs, stats.metric, batch_size)
        pairs = among(pairs, gone, inside=False)
        if not len(gone):  # otherwise others, of earlier groups, may be gone too
            break
    return NearDuplicates(
        threshold,
        Pairs(ids[pairs.first], ids[pairs.second], pairs.scores),
        [tuple(ids[group.members].tolist()) for group in groups],
        [group.least for group in groups],
        compared,
        full < 2 or compared - 1 <= least_seen,
    )


class _There:
    """Gets items, and leaves out those that were removed in the meantime.

    Args:
        index: Whose items they are.
    """

    def __init__(self, index: _Gallery) -> None:
        self._index = index
        self._known: set[Any] | None = None  # ids at the last reading

    def get(self, ids: NDArray[Any]) -> Items:
        """Return those of some items that still exist.

        If one is missing, all ids are read again. That serves later requests too, and
        takes few requests where many are missing.
        """
        for _ in range(_TIMES):
            if self._known is not None:
                ids = ids[[value in self._known for value in ids.tolist()]]
            try:
                return self._index.get(ids)
            except KeyError:
                self._known = set(self._index.ids.tolist())
        return self._halved(ids)

    def _halved(self, ids: NDArray[Any]) -> Items:
        """Do as `get` does, in fewer than two requests per item in any case."""
        try:
            return self._index.get(ids)
        except KeyError:
            if len(ids) == 1:
                return self._index.get(ids[:0])
        one, other = (self._halved(half) for half in np.array_split(ids, 2))
        return Items(
            np.concatenate([one.ids, other.ids]),
            np.concatenate([one.embeddings, other.embeddings]),
            one.attributes + other.attributes,
        )


def _batches(
    there: _There, ids: NDArray[Any], size: int, where: Where | None, kinds: Any
) -> Iterator[Items]:
    """Yield batches of the items that still exist and pass the filter."""
    for start in range(0, len(ids), size):
        items = there.get(ids[start : start + size])
        if where is not None:
            passed = _passed(items.attributes, where, kinds)
            attributes = [items.attributes[row] for row in np.flatnonzero(passed)]
            items = Items(items.ids[passed], items.embeddings[passed], attributes)
        if len(items.ids):
            yield items


def _searched(
    index: _Gallery, items: Items, k: int, where: Where | None
) -> Iterator[tuple[NDArray[Any], SearchResult]]:
    """Search for items, and yield ids of some of them and what was found for these.

    An item for which little is found limits the hits of the others in the same search.
    So it is searched for on its own.
    """
    found = index.search(items.embeddings, k, where=where)
    width = found.ids.shape[1]
    if len(items.ids) == 1 or width == k or width >= index.count(where):
        yield items.ids, found
        return
    middle = len(items.ids) // 2
    for half in (slice(middle), slice(middle, None)):
        some = Items(items.ids[half], items.embeddings[half], items.attributes[half])
        yield from _searched(index, some, k, where)


def _passed(
    attributes: Sequence[dict[str, Any]], where: Where, kinds: dict[str, str]
) -> NDArray[np.bool_]:
    """Mark the items that pass a filter."""
    values = {name: [item.get(name) for item in attributes] for name in kinds}
    checked = check_attributes(values, len(attributes), kinds)
    columns = Columns().with_rows(0, checked, len(attributes))
    return matching(where, columns.view(len(attributes)), len(attributes))


def _distinct(parts: Sequence[Found]) -> Found:
    """Merge pairs found from both sides, the best first."""
    one, other, scores = (np.concatenate(side) for side in zip(*parts, strict=True))
    first, second = np.minimum(one, other), np.maximum(one, other)
    # Rounding may make the scores of both sides differ: the higher one counts.
    order = np.lexsort((-scores, second, first))
    first, second, scores = first[order], second[order], scores[order]
    is_new = np.ones(len(first), np.bool_)
    is_new[1:] = (np.diff(first) != 0) | (np.diff(second) != 0)
    first, second, scores = first[is_new], second[is_new], scores[is_new]
    order = np.argsort(-scores, kind="stable")
    return Found(first[order], second[order], scores[order])
