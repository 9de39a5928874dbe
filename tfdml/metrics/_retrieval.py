"""Compute exact retrieval metrics of a whole set from the ranks of positives."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.exact_search import Metric, PreparedGallery, Ties, check_ties, ranks_in
from tfdml.metrics._results import Average, QueryResults, RankingCurve, WithoutPositive
from tfdml.metrics._task import RetrievalTask

_LEVELS = 100  # precision is given at recall 0, 1 / 100, 2 / 100, ... 1


def retrieval_metrics(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    ks: Sequence[int] = (1, 5),
    *,
    metric: Metric = "cosine",
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ties: Ties = "index",
    average: Average = "micro",
    without_positive: WithoutPositive = "skip",
) -> dict[str, float]:
    """Search every item among all others and measure the rankings.

    With `is_query` and `is_gallery`, as for In-Shop, only the queries are searched
    with, and only the gallery is searched; an item may be both. The query itself is
    left out by its position, so its duplicates are found. A zero embedding has the
    cosine similarity 0 with all others.

    With R the number of positives of a query, rank_i the rank of the i-th of them, rel
    = 1 for a rank that holds a positive, and N- the number of negatives:

    - `precision_at_k`: sum_{r<=k} rel(r) / k, even if R < k.
    - `recall_at_k`: 1 if there is a positive in the first k, else 0 (the Recall@k of
      the metric learning papers, elsewhere CMC@k or hit rate; not the share of
      positives found).
    - `r_precision`: the precision at R.
    - `map_at_r`: (1/R) sum of i / rank_i over positives with rank_i <= R.
    - `mean_average_precision`: (1/R) sum_i i / rank_i, of the whole ranking.
    - `mean_reciprocal_rank`: 1 / rank_1.
    - `roc_auc`: share of pairs of a positive and a negative of which the positive
      comes first, 1 - sum_i (rank_i - i) / (R N-); 1 without negatives.

    Precision@k of open-metric-learning divides by min(k, R) instead, and its mAP@k by
    the number of positives found; pytorch-metric-learning cuts the ranking at its k
    before it computes mean average precision.

    Args:
        embeddings: Float array `[N, dimension]`; or a `RetrievalTask`, which holds
            labels, roles and groups too.
        labels: Class of each item, integers or strings `[N]`, or its super-class.
        ks: The k of Precision@k and Recall@k, each at least 1 and at most the number of
            items that every query is compared with.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.
        groups: Integers or strings `[N]`: items of the query's own group are neither
            searched nor positives, such as the other frames of its clip. `None` leaves
            out the query alone.
        ties: Which of items of equal score comes first, see `tfdml.neighbors`:
            `"index"`, `"pessimistic"` or `"optimistic"`.
        average: `"micro"`: mean over queries; `"macro"`: mean over classes of the mean
            over their queries.
        without_positive: Queries without a positive are left out of every mean
            (`"skip"`) or count as 0 (`"zero"`). Both kinds of query are counted.

    Returns:
        The metrics, each 0 to 1, with `queries`, the number of those with a positive,
        and `queries_without_positive`.

    Raises:
        ValueError: The shapes do not fit, `ks` is out of range, an embedding is not
            finite, or no query has a positive.

    Example:
        >>> embeddings = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.3]])
        >>> labels = np.array([0, 0, 1, 0])
        >>> retrieval_metrics(embeddings, labels, [1])["precision_at_1"]
        1.0

    Reference:
        Musgrave, Belongie and Lim, A Metric Learning Reality Check, ECCV 2020, for
        R-precision and MAP@R; Lu et al., ICCV 2019, Eq. 2, for Precision@k.
    """
    results = query_metrics(
        embeddings,
        labels,
        ks,
        metric=metric,
        is_query=is_query,
        is_gallery=is_gallery,
        groups=groups,
        ties=ties,
    )
    means = results.means(average=average, without_positive=without_positive)
    means["queries"] = len(results.queries)
    means["queries_without_positive"] = len(results.without_positive)
    return means


def query_metrics(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    ks: Sequence[int] = (1, 5),
    *,
    metric: Metric = "cosine",
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ties: Ties = "index",
) -> QueryResults:
    """Measure each query as `retrieval_metrics` does, and keep what it measured.

    All metrics follow from the ranks of the positives, which are counted, not sorted:
    see `tfdml.neighbors`. Memory beside the embeddings is that of one search, and 8
    bytes for each query and metric.

    Args:
        embeddings: As in `retrieval_metrics`, and so are the others.
        labels: Class of each item.
        ks: The k of Precision@k and Recall@k.
        metric: How embeddings are compared.
        is_query: Which items are searched with.
        is_gallery: Which items are searched.
        groups: What must not be compared.
        ties: Which of items of equal score comes first.

    Returns:
        The metrics of each query, by the names of `retrieval_metrics`.

    Raises:
        ValueError: As `retrieval_metrics`.

    Example:
        >>> embeddings = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> results = query_metrics(embeddings, np.array([0, 0, 0, 1]), [1])
        >>> results.queries.tolist(), results.values["precision_at_1"].tolist()
        ([0, 1, 2], [1.0, 1.0, 0.0])
    """
    check_ties(ties)
    task = RetrievalTask.of(
        embeddings, labels, is_query=is_query, is_gallery=is_gallery, groups=groups
    )
    task.checked_ks(ks)
    gallery = PreparedGallery(task.gallery, metric, task.limits.search)

    def ranks_of(items: NDArray[np.int64]) -> NDArray[np.int64]:
        rows, positives = task.embeddings[items], task.positives(items)
        return ranks_in(gallery, rows, positives, task.excluded(items), ties=ties)

    return measured(task, ks, ranks_of)


def measured(
    task: RetrievalTask,
    ks: Sequence[int],
    ranks_of: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> QueryResults:
    """Return the metrics of each query of a task; see `query_metrics`.

    Args:
        task: With labels.
        ks: The k of Precision@k and Recall@k.
        ranks_of: Returns the ranks of the positives of some items in one array, of each
            in rising order.
    """
    ks = task.checked_ks(ks)
    classes = np.asarray(task.labels)
    queries = np.flatnonzero(task.has_positive)
    without_positive = np.flatnonzero(task.is_query & ~task.has_positive)
    allowed = task.compared_counts[queries]
    parts, first_ranks = [], []
    curve = np.zeros((2, _LEVELS + 1))
    positive_counts = task.positive_counts[queries]
    largest_group = len(task.searched) - int(allowed.min())
    most = max(1, task.limits.excluded // max(1, largest_group))
    for block in _blocks(positive_counts, task.limits.ranks, most):
        items = queries[block]
        ranks = _PositiveRanks.of(ranks_of(items), positive_counts[block])
        parts.append(ranks.values(ks, allowed[block]))
        first_ranks.append(ranks.ranks[ranks.starts])
        curve += ranks.precision_at_recall()
    curve /= len(queries)
    return QueryResults(
        queries=queries,
        classes=classes[queries],
        values={n: np.concatenate([part[n] for part in parts]) for n in parts[0]},
        first_ranks=np.concatenate(first_ranks),
        curve=RankingCurve(np.arange(_LEVELS + 1) / _LEVELS, curve[0], curve[1]),
        without_positive=without_positive,
        classes_without_positive=classes[without_positive],
    )


def _blocks(sizes: NDArray[np.int64], ranks: int, most: int) -> Iterator[slice]:
    """Yield slices of the queries with a bounded number of positives each.

    Args:
        sizes: How many positives each query has.
        ranks: How many positives a slice may have; one query may have more.
        most: How many queries a slice may have.
    """
    start = 0
    until = np.cumsum(sizes)
    while start < len(sizes):
        before = until[start - 1] if start else 0
        stop = int(np.searchsorted(until, before + ranks, "right"))
        stop = min(max(stop, start + 1), start + most)
        yield slice(start, stop)
        start = stop


class _PositiveRanks(NamedTuple):
    """The ranks of all positives of some queries, in one."""

    ranks: NDArray[np.int64]
    owners: NDArray[np.int64]
    """The query of each rank."""
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    """The 1-based index of each among the positives of its query."""

    @classmethod
    def of(cls, ranks: NDArray[np.int64], sizes: NDArray[np.int64]) -> "_PositiveRanks":
        """Take the rising ranks of each query, at least one each."""
        starts = np.cumsum(sizes) - sizes
        owners = np.repeat(np.arange(len(sizes)), sizes)
        ordinals = np.arange(len(owners)) - starts[owners] + 1
        return cls(ranks, owners, sizes, starts, ordinals)

    def values(
        self, ks: Sequence[int], allowed: NDArray[np.int64]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the metrics of each query."""

        def total(weights: NDArray[Any]) -> NDArray[np.float64]:
            size = len(self.sizes)
            sums = np.bincount(self.owners, weights, minlength=size)
            return sums.astype(np.float64, copy=False)

        values = {}
        for k in ks:
            found = total(self.ranks <= k)
            values[f"precision_at_{k}"] = found / k
            values[f"recall_at_{k}"] = (found > 0).astype(np.float64)
        precision = self.ordinals / self.ranks
        is_within = self.ranks <= self.sizes[self.owners]
        values["r_precision"] = total(is_within) / self.sizes
        values["map_at_r"] = total(precision * is_within) / self.sizes
        values["mean_average_precision"] = total(precision) / self.sizes
        values["mean_reciprocal_rank"] = 1 / self.ranks[self.starts]
        pairs = self.sizes * (allowed - self.sizes)
        values["roc_auc"] = 1 - total(self.ranks - self.ordinals) / np.maximum(pairs, 1)
        return values

    def precision_at_recall(self) -> NDArray[np.float64]:
        """Sum over queries the precision at each level of recall, `[2, 101]`."""
        # Queries with as many positives have the levels at the same of these: their
        # precisions are added up positive by positive first.
        counts, kinds = np.unique(self.sizes, return_inverse=True)
        firsts = np.cumsum(counts) - counts
        places = firsts[kinds][self.owners] + self.ordinals - 1
        precision = self.ordinals / self.ranks
        at = np.bincount(places, precision)
        highest = np.bincount(places, self._highest_from(precision))
        levels = np.arange(_LEVELS + 1)[:, None]
        reached = levels * counts  # in hundredths of a positive
        place = np.maximum(-(-reached // _LEVELS), 1) - 1
        left = np.clip(reached // _LEVELS, 1, counts) - 1
        right = np.minimum(left + 1, counts - 1)
        share = np.maximum(reached / _LEVELS - (left + 1), 0)
        before, after = at[firsts + left], at[firsts + right]
        between = before + share * (after - before)
        return np.stack([highest[firsts + place].sum(axis=1), between.sum(axis=1)])

    def _highest_from(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the highest value of each rank's query from that rank on."""
        highest = values.copy()
        ends, step = (self.starts + self.sizes)[self.owners], 1
        while step < self.sizes.max():  # highest: of the next `step`
            first, second = highest[:-step], highest[step:]
            is_near = np.arange(step, len(values)) < ends[:-step]
            np.maximum(first, second, out=first, where=is_near)
            step *= 2
        return highest
