"""Count all positive and negative pairs by their similarity."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml._core.embeddings import row_norms
from tfdml._core.exact_search import leave_out
from tfdml.messages import shown
from tfdml.metrics._task import RetrievalTask

STEP = 2.0**-20
"""Similarities are rounded to the nearest multiple of it."""

_LEFT_OUT = 2**21 + 1  # the bin behind that of similarity 1


@dataclass(frozen=True, eq=False)
class PairCounts:
    """The number of pairs of each similarity."""

    scores: NDArray[np.float64]
    """Distinct similarities, multiples of `STEP`, rising, `[S]`."""
    positives: NDArray[np.int64]
    """Pairs of one label, `[S]`."""
    negatives: NDArray[np.int64]
    """Pairs of two labels, `[S]`."""


def pair_counts(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    *,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> PairCounts:
    """Count the pairs of each cosine similarity, block by block.

    Cosine similarities are computed in float64 and rounded to the nearest multiple of
    2^-20, about 1e-6: those that are then equal are ties. (In float32 the same two rows
    may score differently in another place of a product, so that equal rows would not
    tie.) A row of zeros has the similarity 0 with all. Memory, beside the inputs: two
    copies of the embeddings in float64 and 200 MiB (260 where nearly all pairs are of
    one label), or more where one row of scores is larger than a block.

    Without roles every two different items are one pair. With `is_query` or
    `is_gallery` every (query, gallery) pair of two different items counts; two items
    that both have both roles then count twice, once from each side.

    Args:
        embeddings: Float array `[N, dimension]`, finite; or a `RetrievalTask`, which
            holds labels, roles and groups too.
        labels: Integers or strings `[N]`. Pairs of one label are positive.
        is_query: Bool array `[N]`; `None`: all are queries.
        is_gallery: Bool array `[N]`; `None`: all are in the gallery.
        groups: Integers or strings `[N]`: pairs within one group, such as the frames of
            one clip, are left out. `None` leaves out none.

    Returns:
        The counts; both may hold nothing.

    Raises:
        ValueError: The shapes or types do not fit, or a number is not finite.

    Example:
        >>> counts = pair_counts([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], [7, 7, 8])
        >>> counts.scores.tolist(), counts.positives.tolist(), counts.negatives.tolist()
        ([0.0, 1.0], [0, 1], [2, 0])
    """
    task = RetrievalTask.of(
        embeddings, labels, is_query=is_query, is_gallery=is_gallery, groups=groups
    )
    everything, positives = (np.zeros(_LEFT_OUT + 1, np.int64) for _ in range(2))
    for bins, is_positive, *_ in _blocks(task, _unit_rows(task), task.queries):
        _count(everything, bins.ravel())
        _count(positives, bins[is_positive])
    everything[_LEFT_OUT] = 0
    found = np.flatnonzero(everything)
    scores = found.astype(np.float64) * STEP - 1
    return PairCounts(scores, positives[found], everything[found] - positives[found])


def accepted_by_class(
    task: RetrievalTask, thresholds: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the positive pairs of each class that reach a similarity.

    Pairs and similarities are those of `pair_counts`. Only pairs of one label are
    computed.

    Args:
        task: Whose pairs are counted.
        thresholds: Similarities `[T]`, not NaN: pairs of at least these are accepted.

    Returns:
        Accepted pairs `[T, C]` and all pairs `[C]`, int64, of the classes in the sorted
        order of their labels.

    Raises:
        ValueError: `thresholds` are not numbers `[T]`.

    Example:
        >>> rows = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]
        >>> task = RetrievalTask(rows, ["a", "a", "b", "b"])
        >>> accepted, pairs = accepted_by_class(task, [0.8, 0.9])
        >>> accepted.tolist(), pairs.tolist()
        ([[1, 1], [1, 0]], [1, 1])
    """
    lowest = np.ceil((_checked_thresholds(thresholds) + 1) / STEP)
    classes, class_of, unit_rows = task.class_count, task.class_of, _unit_rows(task)
    accepted = np.zeros((len(lowest), classes), np.int64)
    pairs = np.zeros(classes, np.int64)
    queries, searched = (
        _by_class(class_of, items, classes) for items in (task.queries, task.searched)
    )
    for name in range(classes):
        of_class = task.among(searched[name])
        for bins, *_ in _blocks(of_class, unit_rows, queries[name]):
            kept = bins[bins < _LEFT_OUT]
            pairs[name] += len(kept)
            found = [np.count_nonzero(kept >= bin_) for bin_ in lowest]
            accepted[:, name] += np.array(found, np.int64)  # an empty list is float
    return accepted, pairs


def pairs_by_class(
    task: RetrievalTask, thresholds: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the pairs of each class that reach a similarity, and all of them.

    Pairs and similarities are those of `pair_counts`. A pair is of the class of its
    query; without roles a negative pair is of both its classes.

    Args:
        task: Whose pairs are counted.
        thresholds: Similarities `[T]`, not NaN: pairs of at least these are accepted.

    Returns:
        Positive pairs and negative pairs, int64 `[C, T + 1]`, of the classes in the
        sorted order of their labels: those accepted by each threshold, and all.

    Raises:
        ValueError: `thresholds` are not numbers `[T]`.

    Example:
        >>> rows = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
        >>> task = RetrievalTask(rows, ["a", "a", "b"])
        >>> positives, negatives = pairs_by_class(task, [0.8])
        >>> positives.tolist(), negatives.tolist()
        ([[1, 1], [0, 0]], [[0, 2], [0, 2]])
    """
    lowest = np.ceil((_checked_thresholds(thresholds) + 1) / STEP)
    # How many thresholds accept a bin; the last level is of what is not a pair.
    levels, classes = len(lowest) + 2, task.class_count
    level_of = np.searchsorted(np.sort(lowest), np.arange(_LEFT_OUT + 1), "right")
    level_of[_LEFT_OUT] = levels - 1
    everything, positives = (np.zeros(classes * levels, np.int64) for _ in range(2))
    for block in _blocks(task, _unit_rows(task), task.queries):
        bins, is_positive, *sides = block
        cells = level_of[bins]
        for side in sides[:1] if task.has_roles else sides:
            everything += np.bincount(
                (cells + levels * side).ravel(), minlength=len(everything)
            )
        of_one_class = (cells + levels * sides[0])[is_positive]
        positives += np.bincount(of_one_class, minlength=len(positives))
    negatives = everything - (1 if task.has_roles else 2) * positives
    ranks = np.argsort(np.argsort(lowest, kind="stable"), kind="stable")
    columns = np.append(ranks + 1, 0)
    return tuple(  # type: ignore[return-value]
        # Pairs of at least each level.
        np.cumsum(x.reshape(classes, levels)[:, -2::-1], axis=1)[:, ::-1][:, columns]
        for x in (positives, negatives)
    )


def _by_class(
    class_of: NDArray[np.int64], items: NDArray[np.int64], classes: int
) -> list[NDArray[np.int64]]:
    """Return the items of each class, rising."""
    order = items[np.argsort(class_of[items], kind="stable")]
    ends = np.cumsum(np.bincount(class_of[items], minlength=classes))
    return np.split(order, ends[:-1])


def _unit_rows(task: RetrievalTask) -> NDArray[np.float64]:
    """Return the embeddings at length 1, rows of zeros as they are."""
    norms = row_norms(task.embeddings)
    rows: NDArray[np.float64] = (
        task.embeddings / np.where(norms > 0, norms, 1)[:, np.newaxis]
    )
    return rows


def _checked_thresholds(thresholds: ArrayLike) -> NDArray[np.float64]:
    array = as_array("thresholds", thresholds)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(
            f"`thresholds` must be numbers [T]. Received: {shown(thresholds)}."
        )
    unknown = np.flatnonzero(np.isnan(array))
    if unknown.size:
        raise ValueError(
            f"`thresholds` must not be NaN. Received: NaN at place {unknown[0]}."
        )
    return array.astype(np.float64)


def _blocks(
    task: RetrievalTask, unit_rows: NDArray[np.float64], queries: NDArray[np.int64]
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the bin of each pair, block by block, and which pairs are positive.

    Behind them are the class of each row, `[rows, 1]`, and of each column. A bin is
    (similarity + 1) / `STEP`, or `_LEFT_OUT` for what is not a pair. The arrays are
    used again for the next block.
    """
    searched, class_of = task.searched, task.class_of
    gallery_rows = unit_rows[searched] if len(searched) < len(task) else unit_rows
    step = max(1, min(len(queries), task.limits.pairs // max(1, len(searched))))
    # Fresh arrays of this size would cost more, in page faults, than the product.
    scores_memory = np.empty(step * len(searched))
    bins_memory = np.empty(step * len(searched), np.int64)
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        # Without roles queries and gallery are the same items: only the pairs above
        # the diagonal count.
        skipped = 0 if task.has_roles else start
        columns = searched[skipped:]
        shape, size = (len(block), len(columns)), len(block) * len(columns)
        scores = scores_memory[:size].reshape(shape)
        bins = bins_memory[:size].reshape(shape)
        np.matmul(unit_rows[block] / STEP, gallery_rows[skipped:].T, out=scores)
        # Conversion to integers cuts off: with a half added it rounds.
        scores += 1 / STEP + 0.5
        np.copyto(bins, scores, casting="unsafe")
        leave_out(bins, task.excluded(block) - skipped, _LEFT_OUT)
        if not task.has_roles:
            square = bins[:, : len(block)]
            np.copyto(square, _LEFT_OUT, where=np.tri(len(block), dtype=bool))
        sides = class_of[block, np.newaxis], class_of[columns]
        yield bins, sides[0] == sides[1], *sides


def _count(totals: NDArray[np.int64], bins: NDArray[np.int64]) -> None:
    if bins.size > len(totals) // 16:
        totals += np.bincount(bins, minlength=len(totals))
    else:  # writing all bins for a few pairs would take longer
        np.add.at(totals, bins, 1)
