"""Retrieval metrics of a whole set, exact."""

from collections.abc import Sequence

import numpy as np

from tfdml._embeddings import DIVERGED, as_embeddings
from tfdml._labels import checked_labels, checked_role
from tfdml.metrics._ranked import LEVELS, Ranked
from tfdml.metrics._results import Average, QueryResults, RankingCurve, WithoutPositive
from tfdml.metrics._task import RetrievalTask
from tfdml.neighbors import Metric, PreparedGallery, Ties, check_ties, ranks_in


def retrieval_metrics(
    embeddings: np.ndarray,
    labels: np.ndarray,
    ks: Sequence[int] = (1, 5),
    *,
    metric: Metric = "cosine",
    is_query: np.ndarray | None = None,
    is_gallery: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    ties: Ties = "index",
    average: Average = "micro",
    without_positive: WithoutPositive = "skip",
) -> dict[str, float]:
    """Search every item among all others and say how good the rankings are.

    With `is_query` and `is_gallery`, as In-Shop has them, queries alone are searched
    with, and the gallery alone is searched; an item may be both. The query itself is
    left out by its position, so that its duplicates are found. A zero embedding has the
    cosine similarity 0 with all others.

    With R the number of positives of a query, rank_i the rank of the i-th of them, rel
    = 1 for a rank that holds a positive, and N- the number of negatives:

    - `precision_at_k`: sum_{r<=k} rel(r) / k, also where R < k.
    - `recall_at_k`: 1 if there is a positive in the first k, else 0 (the Recall@k of
      the metric learning papers, elsewhere CMC@k or hit rate; not the share of
      positives found).
    - `r_precision`: the precision at R.
    - `map_at_r`: (1/R) sum of i / rank_i over positives with rank_i <= R.
    - `mean_average_precision`: (1/R) sum_i i / rank_i, of the whole ranking.
    - `mean_reciprocal_rank`: 1 / rank_1.
    - `roc_auc`: share of pairs of a positive and a negative of which the positive
      stands first, 1 - sum_i (rank_i - i) / (R N-); 1 without negatives.

    Precision@k of open-metric-learning divides by min(k, R) instead, and its mAP@k by
    the positives found; pytorch-metric-learning's mean average precision is that of a
    ranking cut at its k.

    Args:
        embeddings: Float array `[N, dimension]`.
        labels: Class of each item, integers or strings `[N]`. Super-classes give the
            metrics of these.
        ks: The k of Precision@k and Recall@k, each at least 1 and at most the number of
            items that every query is compared with.
        metric: `"cosine"`, `"dot_product"` or `"squared_euclidean"`.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.
        groups: Integers or strings `[N]`: items of the query's own group are neither
            searched nor positives, such as the other frames of its clip. `None` leaves
            out the query alone.
        ties: Which of items of equal score stands first, see `tfdml.neighbors`:
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
    embeddings: np.ndarray,
    labels: np.ndarray,
    ks: Sequence[int] = (1, 5),
    *,
    metric: Metric = "cosine",
    is_query: np.ndarray | None = None,
    is_gallery: np.ndarray | None = None,
    groups: np.ndarray | None = None,
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
        ties: Which of items of equal score stands first.

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
    rows = as_embeddings("embeddings", embeddings, unit=False, remedy=DIVERGED)
    labels = checked_labels("labels", labels, len(rows))
    task = RetrievalTask.of(
        labels,
        checked_role("is_query", is_query, len(labels)),
        checked_role("is_gallery", is_gallery, len(labels)),
        None if groups is None else checked_labels("groups", groups, len(labels)),
    )
    ks = task.checked_ks(ks)
    gallery = PreparedGallery(rows[task.searched], metric)
    parts, first_ranks = [], []
    curve = np.zeros((2, LEVELS + 1))
    for block in task.blocks(gallery.queries_at_once()):
        exclude, positives = task.compared(block)
        ranks = ranks_in(
            gallery, rows[task.queries[block]], positives, exclude, ties=ties
        )
        ranked = Ranked.of(ranks)
        parts.append(ranked.values(ks, task.allowed[block]))
        first_ranks.append(ranked.ranks[ranked.starts])
        curve += ranked.precision_at_recall()
    curve /= len(task.queries)
    return QueryResults(
        queries=task.queries,
        classes=labels[task.queries],
        values={n: np.concatenate([part[n] for part in parts]) for n in parts[0]},
        first_ranks=np.concatenate(first_ranks),
        curve=RankingCurve(np.arange(LEVELS + 1) / LEVELS, curve[0], curve[1]),
        without_positive=task.without_positive,
        classes_without_positive=labels[task.without_positive],
    )
