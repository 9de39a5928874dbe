"""Measure the recall of a searcher with queries whose true neighbors are known."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml.index._recall import MeasuredRecall, RecallTarget, recall_interval
from tfdml.index.engines._coded import CodedSearcher
from tfdml.index.engines._exact import ExactRows
from tfdml.index.engines._rescored import RescoredSearcher

Searcher = CodedSearcher | RescoredSearcher | ExactRows
"""What a `LocalIndex` searches its rows with."""

K = 10
"""The neighbors whose recall is measured."""

FEW = 200
"""Queries that show most settings to fall short."""

_QUERIES = 1_000  # in each of the two samples
TIE = 1e-6
"""Share by which scores of equal rows differ, by their rounding."""

_ONE_SIDED = 1.645  # standard deviations, of 95% confidence


class Sample(NamedTuple):
    """Queries and their true neighbors.

    Attributes:
        queries: float32 `[Q, D]`.
        own: The row that each query is, `[Q]`; None where they are the caller's.
        rows: The true neighbors `[Q, 10]`.
        worst: The scores of the last of them `[Q]`.
    """

    queries: NDArray[np.float32]
    own: NDArray[np.int64] | None
    rows: NDArray[np.int64]
    worst: NDArray[np.float32]

    def part(self, part: slice) -> "Sample":
        """Return some of the queries."""
        own = None if self.own is None else self.own[part]
        return Sample(self.queries[part], own, self.rows[part], self.worst[part])


def draw_samples(
    gallery: NDArray[np.float32], exact: ExactRows, target: RecallTarget
) -> list[Sample]:
    """Draw the queries that choose, and those that measure.

    Args:
        gallery: Embeddings `[N, D]`.
        exact: Compares with all of it.
        target: With the queries of the caller, if there are any.
    """
    generator = np.random.default_rng(target.seed)
    given = target.queries
    rows = len(gallery if given is None else given)
    count = min(_QUERIES, rows // 2)
    drawn = generator.permutation(rows)[: 2 * count]
    samples = []
    for part in (drawn[:count], drawn[count:]):
        own = part if given is None else None
        queries = (gallery if given is None else given)[part]
        true, scores = _neighbors(exact, queries, own)
        samples.append(Sample(queries, own, true, scores[:, -1]))
    return samples


def may_reach(recalls: NDArray[np.float64], target: float) -> bool:
    """Return whether the recalls of a few queries leave hope for a target."""
    return recall_interval(recalls)[1] >= target


def has_reached(recalls: NDArray[np.float64], target: float) -> bool:
    """Return whether a target is reached, up to chance."""
    return recall_interval(recalls, _ONE_SIDED)[0] >= target


def measured(recalls: NDArray[np.float64], target: RecallTarget) -> MeasuredRecall:
    """Return what an index says of its recall."""
    low, high = recall_interval(recalls)
    return MeasuredRecall(
        value=float(recalls.mean()),
        k=K,
        queries=len(recalls),
        low=low,
        high=high,
        target=target.value,
        own_queries=target.queries is not None,
    )


def recalls_of(searcher: Searcher, sample: Sample) -> NDArray[np.float64]:
    """Return the recall@10 of each query, `[Q]`; ties with the last count as found."""
    rows, scores = _neighbors(searcher, sample.queries, sample.own)
    found = (rows[:, :, None] == sample.rows[:, None, :]).any(axis=2)
    worst = sample.worst[:, None]
    found |= scores >= worst - TIE * np.abs(worst)
    return found.mean(axis=1)


def _neighbors(
    searcher: Searcher,
    queries: NDArray[np.float32],
    own: NDArray[np.int64] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Search for 10 neighbors, the queries themselves left out."""
    if own is None:
        return searcher.nearest(queries, K)
    return searcher.nearest_others(queries, own, K)
