"""Group near-duplicates, and find the member that represents each group."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml._core.embeddings import unit_or_zero
from tfdml.index._interface import Items, Metric


class Found(NamedTuple):
    """Pairs as places in the gallery, and their scores."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    scores: NDArray[np.float32]


class Group(NamedTuple):
    """A group as places in the gallery, its medoid first, and its least score."""

    members: NDArray[np.int64]
    least: float


def among(pairs: Found, items: NDArray[np.int64], *, inside: bool) -> Found:
    """Return the pairs with both ends among some items, or with neither."""
    first, second = (np.isin(end, items) == inside for end in pairs[:2])
    both = first & second
    return Found(pairs.first[both], pairs.second[both], pairs.scores[both])


def groups_of(
    get: Callable[[NDArray[Any]], Items],
    ids: NDArray[Any],
    pairs: Found,
    metric: Metric,
    at_once: int,
) -> tuple[list[Group], NDArray[np.int64]]:
    """Return the connected groups of pairs, and those of their items that are gone.

    Args:
        get: Returns those of some items that still exist, by their ids.
        ids: The ids of the gallery.
        pairs: The pairs.
        metric: How embeddings are compared.
        at_once: How many items to get at once, unless one group has more.

    Returns:
        The groups, the largest first, equally large ones in the order of the gallery;
        and the places of items that are gone, which belong to no group.
    """
    groups, gone = [], [np.empty(0, np.int64)]
    for some in _together(_connected(pairs), at_once):
        members = np.sort(np.concatenate(some))
        items = get(ids[members])
        if len(items.ids) < len(members):
            stays = np.isin(ids[members], items.ids)
            gone.append(members[~stays])
            members = members[stays]
            some = _connected(among(pairs, members, inside=True))
        for part in some:
            own = items.embeddings[np.searchsorted(members, part)]
            nearest, least = _from_medoid(own, metric)
            groups.append((part[0], Group(part[nearest], least)))
    # Of equal length, in the order of the gallery.
    groups.sort(key=lambda group: (-len(group[1].members), group[0]))
    return [group for _, group in groups], np.concatenate(gone)


def _connected(pairs: Found) -> list[NDArray[np.int64]]:
    """Return the items that pairs connect, the largest group first, each sorted."""
    members, places = np.unique(np.stack(pairs[:2]), return_inverse=True)
    roots = _roots(places.reshape(2, -1), len(members))
    order = np.argsort(roots, kind="stable")
    starts = np.flatnonzero(np.diff(roots[order], prepend=-1))
    parts = np.split(members[order], starts[1:]) if len(members) else []
    return sorted(parts, key=len, reverse=True)


def _together(
    parts: Sequence[NDArray[np.int64]], at_once: int
) -> Iterator[list[NDArray[np.int64]]]:
    """Yield parts in their order, as many at a time as hold few items together."""
    some: list[NDArray[np.int64]] = []
    for part in parts:
        if some and sum(map(len, some)) + len(part) > at_once:
            yield some
            some = []
        some.append(part)
    if some:
        yield some


def _roots(ends: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return for each item the lowest one that pairs lead to from it.

    `scipy.sparse.csgraph.connected_components` would do, but the library alone does not
    install SciPy.
    """
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
    embeddings: NDArray[np.float32], metric: Metric
) -> tuple[NDArray[np.int64], float]:
    """Return the members by their score with the medoid, and the least such score."""
    rows: NDArray[Any] = unit_or_zero(embeddings) if metric == "cosine" else embeddings
    if metric == "squared_euclidean":  # moved to where little cancels out
        rows = rows - rows.mean(axis=0, dtype=np.float64)
    total = rows.sum(axis=0, dtype=np.float64)
    sums = np.einsum("nd,d->n", rows, total)
    squares = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    if metric == "squared_euclidean":
        # Up to what all have in common: minus the sum of the distances to the others.
        sums = 2 * sums - len(rows) * squares
    else:
        sums -= squares
    # Means fit float32, in which equal sums tie: then the first is the medoid.
    medoid = int(np.argmax((sums / len(rows)).astype(np.float32)))
    center = rows[medoid].astype(np.float64)
    if metric == "squared_euclidean":
        scores = -np.square(rows - center).sum(axis=1)
    else:
        scores = np.einsum("nd,d->n", rows, center)
    others = np.delete(np.arange(len(rows)), medoid)
    nearest = others[np.argsort(-scores[others].astype(np.float32), kind="stable")]
    return np.concatenate([[medoid], nearest]), float(scores[nearest[-1]])
