"""Find the rank of each positive without sorting the gallery."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfdml._core.exact_search._gpu_ranks import find_ranks_on_gpu
from tfdml._core.exact_search._scores import PreparedGallery, SearchLimits, leave_out
from tfdml._core.exact_search._ties import Ties, tie_keys
from tfdml._core.parallel import in_threads


class _Count(NamedTuple):
    """The ranks of one query as far as a product decides them."""

    above: NDArray[np.int64]
    """How many rows surely come before each positive, `[R]`."""
    ordinals: NDArray[np.int64]
    """Which positives must still be compared, `[P]`."""
    others: NDArray[np.int64]
    """The gallery row to compare each of them with, `[P]`."""


def ranks_in(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    positives: Sequence[NDArray[np.int64]],
    exclude: NDArray[np.int64],
    *,
    ties: Ties,
) -> NDArray[np.int64]:
    """Find ranks as `positive_ranks` does, without checks.

    Args:
        gallery: The gallery.
        queries: Checked embeddings `[Q, D]`.
        positives: Of each query, in rising order.
        exclude: What `check_exclude` returned.
        ties: As in `positive_ranks`.

    Returns:
        The ranks of all queries in one, of each in rising order.
    """
    sizes = np.array([len(rows) for rows in positives], np.int64)
    if not sizes.sum():
        return np.empty(0, np.int64)
    wanted = np.concatenate(positives)
    ranks = np.empty(len(wanted), np.int64)
    is_done = find_ranks_on_gpu(gallery, queries, wanted, sizes, exclude, ties, ranks)
    starts = np.cumsum(sizes) - sizes
    left, step = np.flatnonzero(~is_done), gallery.queries_at_once()
    for start in range(0, len(left), step):
        some = left[start : start + step]
        found = _block(
            gallery,
            queries[some],
            [positives[query] for query in some],
            exclude[some],
            ties,
        )
        for query, values in zip(some, found, strict=True):
            ranks[starts[query] : starts[query] + sizes[query]] = values
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return ranks[np.lexsort((ranks, owners))]


def _block(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    positives: Sequence[NDArray[np.int64]],
    exclude: NDArray[np.int64],
    ties: Ties,
) -> list[NDArray[np.int64]]:
    """Find the ranks of a block of queries on the CPU."""
    ranks = [np.empty(0, np.int64)] * len(queries)
    unsettled = np.array([q for q, rows in enumerate(positives) if len(rows)], int)
    for sharp in (False, True):
        if not len(unsettled):
            return ranks
        product, slack = gallery.products(queries[unsettled], sharp=sharp)
        leave_out(product, exclude[unsettled])
        counts: dict[int, _Count] = {}
        for query, count in zip(
            unsettled,
            _counts(product, [positives[q] for q in unsettled], slack, gallery.limits),
            strict=True,
        ):
            if count is not None:
                counts[query] = count
        for query, found in _settled(gallery, queries, positives, counts, ties).items():
            ranks[query] = found
        unsettled = np.array([q for q in unsettled if q not in counts], int)
    if not len(unsettled):
        return ranks
    badness = gallery.all_scores(queries[unsettled])  # embeddings have collapsed
    if gallery.sign > 0:
        np.negative(badness, out=badness)
    leave_out(badness, exclude[unsettled], np.inf)
    for row, query in enumerate(unsettled):
        ranks[query] = _sorted_ranks(badness[row], positives[query], ties)
    return ranks


def _counts(
    product: NDArray[Any],
    positives: Sequence[NDArray[np.int64]],
    slack: NDArray[np.float64],
    limits: SearchLimits,
) -> list[_Count | None]:
    def counted(part: slice) -> list[_Count | None]:
        rows = zip(product[part], positives[part], slack[part], strict=True)
        return [_count(*row, limits.few_positives) for row in rows]

    # Threads get in each other's way where NumPy takes microseconds for a row.
    least = 1 if product.shape[1] >= limits.long_row else len(product)
    return [c for part in in_threads(counted, len(product), least=least) for c in part]


def _count(
    row: NDArray[Any], positives: NDArray[np.int64], slack: float, few_positives: int
) -> _Count | None:
    """Count what comes before each positive; None where too much is undecided."""
    # Above this, comparing pairs would cost more than a float64 product.
    few = max(4 * len(positives), row.size // 64)
    own, dtype = row[positives], row.dtype.type
    with np.errstate(over="ignore"):
        low = np.nextafter((own - slack).astype(dtype), dtype(-np.inf))
        high = np.nextafter((own + slack).astype(dtype), dtype(np.inf))
    columns = None
    near = row >= low.min()
    if np.count_nonzero(near) <= row.size // 8:
        columns = np.flatnonzero(near)
        row = row[columns]
    order = None
    if columns is None and len(positives) <= few_positives:
        above = np.array([np.count_nonzero(row > limit) for limit in high])
        until = np.array([np.count_nonzero(row >= limit) for limit in low])
    else:
        order = np.argsort(row)
        rising = row[order]
        above = row.size - np.searchsorted(rising, high, "right")
        until = row.size - np.searchsorted(rising, low, "left")
    if (until - above).sum() > few + len(positives):
        return None
    unclear = np.flatnonzero(until - above > 1)
    between = [
        np.flatnonzero((row >= low[i]) & (row <= high[i]))
        if order is None
        else order[row.size - until[i] : row.size - above[i]]
        for i in unclear
    ]
    others = np.concatenate([np.empty(0, np.int64), *between])
    ordinals = np.repeat(unclear, [len(rows) for rows in between])
    # A row that is excluded scores -inf, and may be within an infinite slack.
    is_other = row[others] > -np.inf
    if columns is not None:
        others = columns[others]
    is_other &= others != positives[ordinals]
    return _Count(above, ordinals[is_other], others[is_other])


def _settled(
    gallery: PreparedGallery,
    queries: NDArray[np.float32],
    positives: Sequence[NDArray[np.int64]],
    counts: dict[int, _Count],
    ties: Ties,
) -> dict[int, NDArray[np.int64]]:
    """Compare the pairs that are left and return the ranks of each query."""
    if not counts:
        return {}
    sizes = np.array([len(count.above) for count in counts.values()])
    starts = np.cumsum(sizes) - sizes
    wanted = np.concatenate([positives[query] for query in counts])
    owners = np.repeat(list(counts), sizes)
    above = np.concatenate([count.above for count in counts.values()])

    others = np.concatenate([count.others for count in counts.values()])
    places = np.concatenate(
        [
            start + count.ordinals
            for start, count in zip(starts, counts.values(), strict=True)
        ]
    )
    if len(places):
        unclear, compared = np.unique(places, return_inverse=True)
        own = gallery.scores(queries, owners[unclear], wanted[unclear])[compared]
        found = gallery.scores(queries, owners[places], others)
        before = found < own if gallery.metric == "squared_euclidean" else found > own
        tied = np.flatnonzero(found == own)
        keys = owners * len(gallery) + wanted  # rising
        key = owners[places[tied]] * len(gallery) + others[tied]
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        is_positive = keys[at] == key
        earlier = others[tied] < wanted[places[tied]]
        before[tied] = _comes_first(ties, earlier, is_positive)
        above = above + np.bincount(places[before], minlength=len(above))
    return {
        query: np.sort(above[start : start + size] + 1)
        for query, start, size in zip(counts, starts, sizes, strict=True)
    }


def _comes_first(
    ties: Ties, earlier: NDArray[np.bool_], is_positive: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which rows come before a positive of equal score."""
    if ties == "index":
        return earlier
    if ties == "pessimistic":
        return earlier | ~is_positive
    return earlier & is_positive


def _sorted_ranks(
    badness: NDArray[np.float32], positives: NDArray[np.int64], ties: Ties
) -> NDArray[np.int64]:
    is_positive = np.zeros(len(badness), bool)
    is_positive[positives] = True
    # lexsort() is stable: what is equal in both stays in the order of the index.
    order = np.lexsort((tie_keys(ties, is_positive), badness))
    return np.flatnonzero(is_positive[order]) + 1
