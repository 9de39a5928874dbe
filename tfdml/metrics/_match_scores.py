"""How similar a query's nearest item is, and the nearest of another class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._embeddings import as_embeddings
from tfdml._labels import blocks_by_group, checked_role, class_codes
from tfdml.neighbors import ExactSearcher

_FIRST = 32  # neighbours that nearly always hold one of another class
_EXCLUDED = 2**20  # gallery rows that a block of queries leaves out


@dataclass(frozen=True, eq=False)
class MatchScores:
    """What a search would answer each query, right or wrong.

    Args:
        queries: Which items these queries are, int64 `[Q]`, in rising order.
        similarity: Of the nearest gallery item, float32 `[Q]`; -inf where the query is
            compared with none.
        is_right: Whether that item has the query's class, bool `[Q]`.
        has_positive: Whether the query is compared with any of its class, bool `[Q]`.
        negative_similarity: Of the nearest item of another class, float32 `[Q]`: what
            the query gets whose class is not in the gallery; -inf where there is none.
        gallery: Number of items searched.
    """

    queries: NDArray[np.int64]
    similarity: NDArray[np.float32]
    is_right: NDArray[np.bool_]
    has_positive: NDArray[np.bool_]
    negative_similarity: NDArray[np.float32]
    gallery: int


def match_scores(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> MatchScores:
    """Search every query exactly, in the whole gallery and in that without its class.

    Similarity is the cosine; a zero embedding has 0 with all others. The query itself
    is left out by its position, so that its duplicates are found. Of items that tie the
    first in order counts.

    The first 32 neighbours nearly always hold one of another class. Where they do not,
    the gallery is searched again without that class, once for each such class: these
    have 32 items or more, so that there are few of them, and memory stays that of a
    copy of the gallery.

    Args:
        embeddings: Real finite numbers `[N, dimension]`.
        labels: Class of each item, integers or strings `[N]`.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.
        groups: Integers or strings `[N]`: items of the query's own group are not
            compared with it, such as the other frames of its clip. `None` leaves out
            the query alone.

    Returns:
        The similarities of all queries, also of those without a positive.

    Raises:
        ValueError: The shapes do not fit, a number is not finite, or no query is
            compared with its own class, or none with another one; the message tells
            which argument leaves none, and the numbers.

    Example:
        >>> rows = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]
        >>> scores = match_scores(rows, ["cat", "cat", "dog"])
        >>> scores.is_right.tolist(), scores.has_positive.tolist()
        ([True, True, False], [True, True, False])
        >>> scores.negative_similarity.round(3).tolist()
        [0.0, 0.6000000238418579, 0.6000000238418579]
    """
    rows = as_embeddings("embeddings", embeddings, unit=False)
    class_of = class_codes("labels", labels, len(rows))
    group_of = np.arange(len(rows))
    if groups is not None:
        group_of = class_codes("groups", groups, len(rows))
    queries = np.flatnonzero(checked_role("is_query", is_query, len(rows)))
    searched = np.flatnonzero(checked_role("is_gallery", is_gallery, len(rows)))
    has_positive = _has_positive(queries, searched, class_of, group_of)
    if not has_positive.any():
        raise ValueError(_why_no_positive(queries, searched, class_of))
    items, scores = _nearest(rows, queries, searched, group_of, _FIRST)
    own = class_of[items] == class_of[queries][:, np.newaxis]
    is_other = (items >= 0) & ~own
    place = np.arange(len(queries)), is_other.argmax(axis=1)
    negatives = np.where(is_other[place], scores[place], np.float32(-np.inf))
    unknown = np.flatnonzero(~is_other[place])
    unknown = unknown[np.argsort(class_of[queries[unknown]], kind="stable")]
    codes = class_of[queries[unknown]]
    for of_class in np.split(unknown, np.flatnonzero(np.diff(codes)) + 1):
        if not len(of_class):  # none is unknown
            continue
        others = searched[class_of[searched] != class_of[queries[of_class[0]]]]
        _, best = _nearest(rows, queries[of_class], others, group_of, 1)
        negatives[of_class] = best[:, 0]
    if not np.isfinite(negatives).any():
        rule = "`is_query`, `is_gallery` and `groups` must leave a query some item of"
        if class_of.max() == 0:
            rule = "`labels` must hold two classes or more: no query has an item of"
        raise ValueError(
            f"{rule} another class to be told from. "
            f"Received: {_counts(queries, searched, class_of)}."
        )
    return MatchScores(
        queries=queries,
        similarity=scores[:, 0],
        is_right=own[:, 0] & (items[:, 0] >= 0),
        has_positive=has_positive,
        negative_similarity=negatives,
        gallery=len(searched),
    )


def _has_positive(
    queries: NDArray[np.int64],
    searched: NDArray[np.int64],
    class_of: NDArray[np.int64],
    group_of: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Tell whether the gallery has more of the query's class than its own group."""
    kinds = class_of * (group_of.max(initial=0) + 1) + group_of
    of_class, of_kind = (
        _times(codes[searched], codes[queries]) for codes in (class_of, kinds)
    )
    more: NDArray[np.bool_] = of_class > of_kind
    return more


def _times(values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each wanted number is among the values."""
    ordered = np.sort(values)
    last = np.searchsorted(ordered, wanted, "right").astype(np.int64)
    return last - np.searchsorted(ordered, wanted)


def _why_no_positive(
    queries: NDArray[np.int64],
    searched: NDArray[np.int64],
    class_of: NDArray[np.int64],
) -> str:
    everyone = np.arange(len(class_of))
    grouped = int(_has_positive(queries, searched, class_of, everyone).sum())
    if not len(class_of):
        return "`embeddings` must hold items. Received: none."
    if not len(queries):
        rule = "`is_query` must have a query"
    elif not len(searched):
        rule = "`is_gallery` must have an item to find"
    elif grouped:
        rule = (
            f"`groups` must leave a query some item of its class: {grouped} queries "
            "have one in their own group alone"
        )
    elif class_of.max() + 1 == len(class_of):
        rule = "`labels` must hold some label twice: every item is alone in its class"
    else:
        rule = "`is_gallery` must have an item of a query's class, beside the query"
    return f"{rule}. Received: {_counts(queries, searched, class_of)}."


def _counts(
    queries: NDArray[np.int64],
    searched: NDArray[np.int64],
    class_of: NDArray[np.int64],
) -> str:
    return (
        f"{class_of.max() + 1} classes of {len(class_of)} items, {len(queries)} "
        f"queries, {len(searched)} in the gallery"
    )


def _nearest(
    rows: NDArray[np.float32],
    queries: NDArray[np.int64],
    searched: NDArray[np.int64],
    group_of: NDArray[np.int64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the nearest searched items of other groups than the query's own.

    Returns:
        Items `[Q, k]` and similarities `[Q, k]`; -1 and -inf after the last one.
    """
    items = np.full((len(queries), k), -1, np.int64)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    if not len(searched):
        return items, scores
    searcher = ExactSearcher(rows[searched], "cosine", zero_rows=True)
    for block, exclude in blocks_by_group(
        group_of[queries], group_of[searched], _EXCLUDED
    ):
        depth = min(k, len(searched) - exclude.shape[1])
        found, similarities = searcher.nearest(rows[queries[block]], depth, exclude)
        items[block, :depth] = searched[found]
        scores[block, :depth] = similarities
    return items, scores
