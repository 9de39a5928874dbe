"""Measure a search whose results are ranked again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import at_least_zero, in_range, whole
from tfdml._core.embeddings import unit_or_zero
from tfdml._core.exact_search import Ties
from tfdml._core.expansion import moved, weights_of
from tfdml.messages import shown
from tfdml.metrics._results import QueryResults
from tfdml.metrics._retrieval import measured
from tfdml.metrics._task import RetrievalTask
from tfdml.neighbors import ExactSearcher, KReciprocalDistances

_SCORES = 2**23  # that are held at once: 64 MiB
_FEW = 64  # positives from which on sorting is faster than counting


class _Scorer(Protocol):
    """Scores the gallery of a task for some of its items."""

    def scores(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the score of each gallery row, `[Q, G]`; higher is nearer."""
        ...


@dataclass(frozen=True)
class _TowardNeighbors:
    """How far an embedding is moved toward its neighbors."""

    k: int = 10
    alpha: float = 3.0

    def __post_init__(self) -> None:
        whole("k", self.k)
        at_least_zero("alpha", self.alpha)


@dataclass(frozen=True)
class QueryExpansion(_TowardNeighbors):
    """Search twice: the second time with `tfdml.neighbors.expand_queries`.

    Args:
        k: How many neighbors a query is moved toward.
        alpha: How fast their weight falls with the similarity.
    """

    def scorer(self, task: RetrievalTask) -> _Scorer:
        """Prepare the gallery of a task."""
        return _Expanded(task, self)


@dataclass(frozen=True)
class GalleryAugmentation(_TowardNeighbors):
    """Search what `tfdml.neighbors.augment_gallery` returns.

    A query that is in the gallery, too, moves no row of it: else the images that it
    looks for would have come to it before the search.

    Args:
        k: How many neighbors a gallery row is moved toward.
        alpha: How fast their weight falls with the similarity.
    """

    def scorer(self, task: RetrievalTask) -> _Scorer:
        """Prepare the gallery of a task."""
        return _Augmented(task, self)


@dataclass(frozen=True)
class KReciprocal:
    """Rank by `tfdml.neighbors.KReciprocalDistances` of all items of the task.

    Args:
        k1: How many neighbors are looked at.
        k2: Over how many items their weights are averaged.
        weight: The share of the distance itself.
    """

    k1: int = 20
    k2: int = 6
    weight: float = 0.3

    def __post_init__(self) -> None:
        whole("k1", self.k1)
        whole("k2", self.k2)
        in_range("weight", self.weight, 0, 1)

    def scorer(self, task: RetrievalTask) -> _Scorer:
        """Prepare the items of a task."""
        return _Reciprocal(task, self)


Reranking = QueryExpansion | GalleryAugmentation | KReciprocal
"""What ranks the results of a search again."""


def reranked_query_metrics(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    ks: Sequence[int] = (1, 5),
    *,
    rerank: Reranking,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ties: Ties = "index",
) -> QueryResults:
    """Measure each query as `query_metrics` does, after its results were ranked again.

    Embeddings are compared by cosine. What a query must not find, itself or its group,
    takes no part in its expansion either; it does take part in the neighbors that
    k-reciprocal re-ranking looks at. Memory beside the embeddings: a few times their
    size, and a block of scores of 64 MiB.

    Args:
        embeddings: As in `query_metrics`, and so are the others.
        labels: Class of each item.
        ks: The k of Precision@k and Recall@k.
        rerank: How results are ranked again.
        is_query: Which items are searched with.
        is_gallery: Which items are searched.
        groups: What must not be compared.
        ties: Which of items of equal score comes first.

    Returns:
        The metrics of each query, by the names of `retrieval_metrics`.

    Raises:
        ValueError: As `query_metrics`, or the gallery has too few items for `rerank`.

    Example:
        >>> embeddings = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> labels = np.array([0, 0, 1, 1])
        >>> rerank = QueryExpansion(k=1)
        >>> results = reranked_query_metrics(embeddings, labels, [1], rerank=rerank)
        >>> results.values["precision_at_1"].tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    task = RetrievalTask.of(
        embeddings, labels, is_query=is_query, is_gallery=is_gallery, groups=groups
    )
    task.checked_ks(ks)
    scorer = rerank.scorer(task)
    step = max(1, _SCORES // max(1, len(task.searched)))

    def ranks_of(items: NDArray[np.int64]) -> NDArray[np.int64]:
        found = []
        for start in range(0, len(items), step):
            some = items[start : start + step]
            scores = scorer.scores(some).astype(np.float32)
            rows, columns = _places(task.excluded(some))
            scores[rows, columns] = -np.inf
            positives = task.positives(some)
            found += [
                _ranks(own, wanted, ties)
                for own, wanted in zip(scores, positives, strict=True)
            ]
        return np.concatenate(found)

    return measured(task, ks, ranks_of)


def _places(
    excluded: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the query and the gallery row of all that is excluded."""
    rows, columns = np.nonzero(excluded >= 0)
    return rows, excluded[rows, columns]


def _ranks(
    scores: NDArray[np.float32], positives: NDArray[np.int64], ties: Ties
) -> NDArray[np.int64]:
    """Return the ranks of the positives of a query, rising."""
    is_positive = np.zeros(len(scores), np.bool_)
    is_positive[positives] = True
    if ties == "index":
        keys = np.arange(len(scores))
    else:
        first = is_positive if ties == "optimistic" else ~is_positive
        keys = np.where(first, 0, len(scores)) + np.arange(len(scores))
    if len(positives) > _FEW:
        order = np.lexsort((keys, -scores))
        ranks: NDArray[np.int64] = np.flatnonzero(is_positive[order]) + 1
        return ranks
    own, key = scores[positives, None], keys[positives, None]
    before = (scores > own) | ((scores == own) & (keys < key))
    return np.sort(before.sum(axis=1) + 1)


class _Expanded:
    """Scores by expanded queries."""

    def __init__(self, task: RetrievalTask, options: QueryExpansion) -> None:
        self._task = task
        self._options = options
        self._searcher = ExactSearcher(task.gallery, "cosine", zero_rows=True)
        # In float64, so that equal rows have equal scores once these are rounded.
        self._unit = unit_or_zero(task.gallery).astype(np.float64)
        allowed = task.compared_counts[task.has_positive]
        _check_k(options.k, int(allowed.min(initial=len(task))))

    def scores(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        task, options = self._task, self._options
        rows, left_out = task.embeddings[items], task.excluded(items)
        found, scores = self._searcher.nearest(rows, options.k, left_out)
        weights = weights_of(scores, options.alpha)
        sums = moved(rows, self._searcher.gallery, found, weights)
        return unit_or_zero(sums).astype(np.float64) @ self._unit.T


class _Augmented:
    """Scores of augmented gallery rows, each without the query among its neighbors."""

    def __init__(self, task: RetrievalTask, options: GalleryAugmentation) -> None:
        rows = task.gallery
        _check_k(options.k, len(rows) - 2)
        searcher = ExactSearcher(rows, "cosine", zero_rows=True)
        # One more than are counted, in the place of a query that is among them.
        found, scores = searcher.nearest(rows, options.k + 1, np.arange(len(rows)))
        weights = weights_of(scores, options.alpha)
        self._task = task
        self._unit = unit_or_zero(rows)
        self._found, self._weights = found[:, :-1], weights[:, :-1]
        self._sums = moved(rows, rows, found, weights)
        spare = weights[:, -1:] * self._unit[found[:, -1]]
        self._augmented = unit_or_zero(self._sums - spare).astype(np.float64)
        self._order = np.argsort(self._found.ravel(), kind="stable")
        self._ends = np.searchsorted(
            self._found.ravel()[self._order], np.arange(len(rows) + 1)
        )

    def scores(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        task, k = self._task, self._found.shape[1]
        queries = unit_or_zero(task.embeddings[items]).astype(np.float64)
        scores: NDArray[np.float64] = queries @ self._augmented.T
        own = np.searchsorted(task.searched, items)
        is_searched = np.isin(items, task.searched)
        for place in np.flatnonzero(is_searched):
            row = own[place]
            at = self._order[self._ends[row] : self._ends[row + 1]]
            moved_by_it = at // k
            weights = self._weights.ravel()[at]
            without = self._sums[moved_by_it] - weights[:, None] * self._unit[row]
            scores[place, moved_by_it] = unit_or_zero(without) @ queries[place]
        return scores


class _Reciprocal:
    """Scores that are minus the distances of k-reciprocal re-ranking."""

    def __init__(self, task: RetrievalTask, options: KReciprocal) -> None:
        self._searched = task.searched
        self._distances = KReciprocalDistances(
            task.embeddings, k1=options.k1, k2=options.k2, weight=options.weight
        )

    def scores(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        distances = self._distances.of(items)[:, self._searched]
        return -distances.astype(np.float64)


def _check_k(k: int, most: int) -> None:
    if k > most:
        raise ValueError(
            f"`k` of the re-ranking must be from 1 to {most}, the items in the gallery "
            f"that every query may see. Received: k={shown(k)}."
        )
