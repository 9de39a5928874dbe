"""Counts of positive and negative pairs by their similarity, over all pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._embeddings import as_embeddings, row_norms
from tfdml._labels import checked_role, class_codes

STEP = 2.0**-20
"""Similarities are rounded to the nearest multiple of it."""

_BLOCK_ELEMENTS = 2**23  # pairs at once: 64 MiB of scores and 64 MiB of bins
_LEFT_OUT = 2**21 + 1  # the bin behind that of similarity 1


@dataclass(frozen=True, eq=False)
class PairCounts:
    """How many pairs have which similarity."""

    scores: NDArray[np.float64]
    """Distinct similarities, multiples of `STEP`, rising, `[S]`."""
    positives: NDArray[np.int64]
    """Pairs of one label, `[S]`."""
    negatives: NDArray[np.int64]
    """Pairs of two labels, `[S]`."""


def pair_counts(
    embeddings: ArrayLike,
    labels: ArrayLike,
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
        embeddings: Float array `[N, dimension]`, finite.
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
    items = _checked_items(embeddings, labels, is_query, is_gallery, groups)
    everything, positives = (np.zeros(_LEFT_OUT + 1, np.int64) for _ in range(2))
    for bins, is_positive in _blocks(items):
        _count(everything, bins.ravel())
        _count(positives, bins[is_positive])
    everything[_LEFT_OUT] = 0
    found = np.flatnonzero(everything)
    scores = found.astype(np.float64) * STEP - 1
    return PairCounts(scores, positives[found], everything[found] - positives[found])


def accepted_by_class(
    embeddings: ArrayLike,
    labels: ArrayLike,
    thresholds: ArrayLike,
    *,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the positive pairs of each class that reach a similarity.

    Pairs and similarities are those of `pair_counts`. Only pairs of one label are
    computed.

    Args:
        embeddings: As in `pair_counts`.
        labels: As in `pair_counts`.
        thresholds: Similarities `[T]`, not NaN: pairs of at least these are accepted.
        is_query: As in `pair_counts`.
        is_gallery: As in `pair_counts`.
        groups: As in `pair_counts`.

    Returns:
        Accepted pairs `[T, C]` and all pairs `[C]`, int64, of the classes in the sorted
        order of their labels.

    Raises:
        ValueError: As `pair_counts`, or `thresholds` are no numbers `[T]`.

    Example:
        >>> rows = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]
        >>> accepted, pairs = accepted_by_class(rows, ["a", "a", "b", "b"], [0.8, 0.9])
        >>> accepted.tolist(), pairs.tolist()
        ([[1, 1], [1, 0]], [1, 1])
    """
    items = _checked_items(embeddings, labels, is_query, is_gallery, groups)
    lowest = np.ceil((_checked_thresholds(thresholds) + 1) / STEP)
    classes = int(items.labels.max(initial=-1)) + 1
    order = np.argsort(items.labels, kind="stable")
    ends = np.cumsum(np.bincount(items.labels, minlength=classes))
    accepted = np.zeros((len(lowest), classes), np.int64)
    pairs = np.zeros(classes, np.int64)
    for name, members in enumerate(np.split(order, ends[:-1]) if classes else []):
        for bins, _ in _blocks(items.of(members)):
            kept = bins[bins < _LEFT_OUT]
            pairs[name] += len(kept)
            found = [np.count_nonzero(kept >= bin_) for bin_ in lowest]
            accepted[:, name] += np.array(found, np.int64)  # also where there is none
    return accepted, pairs


class _Items(NamedTuple):
    rows: NDArray[np.float64]
    """Of length 1 or 0."""
    labels: NDArray[np.int64]
    is_query: NDArray[np.bool_]
    is_gallery: NDArray[np.bool_]
    has_roles: bool
    groups: NDArray[np.int64] | None

    def of(self, members: NDArray[np.int64]) -> "_Items":
        return _Items(
            self.rows[members],
            self.labels[members],
            self.is_query[members],
            self.is_gallery[members],
            self.has_roles,
            None if self.groups is None else self.groups[members],
        )


def _checked_items(
    embeddings: ArrayLike,
    labels: ArrayLike,
    is_query: ArrayLike | None,
    is_gallery: ArrayLike | None,
    groups: ArrayLike | None,
) -> _Items:
    rows = as_embeddings("embeddings", embeddings, unit=False)
    count, norms = len(rows), row_norms(rows)
    return _Items(
        rows / np.where(norms > 0, norms, 1)[:, None],
        class_codes("labels", labels, count),
        checked_role("is_query", is_query, count),
        checked_role("is_gallery", is_gallery, count),
        is_query is not None or is_gallery is not None,
        None if groups is None else class_codes("groups", groups, count),
    )


def _checked_thresholds(thresholds: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(thresholds)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(f"`thresholds` must be numbers [T]. Received: {thresholds!r}.")
    unknown = np.flatnonzero(np.isnan(array))
    if unknown.size:
        raise ValueError(
            f"`thresholds` must not be NaN. Received: NaN at place {unknown[0]}."
        )
    return array.astype(np.float64)


def _blocks(items: _Items) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield the bin of each pair, block by block, and which pairs are positive.

    A bin is (similarity + 1) / `STEP`, or `_LEFT_OUT` for what is no pair. The arrays
    are used again for the next block.
    """
    left, right = items.is_query.nonzero()[0], items.is_gallery.nonzero()[0]
    rows = items.rows[right] if items.has_roles else items.rows
    step = max(1, min(len(left), _BLOCK_ELEMENTS // max(1, len(right))))
    # Fresh arrays of this size would cost more, in page faults, than the product.
    scores_memory = np.empty(step * len(right))
    bins_memory = np.empty(step * len(right), np.int64)
    for start in range(0, len(left), step):
        block = left[start : start + step]
        # Without roles only the pairs above the diagonal.
        columns = right if items.has_roles else right[start:]
        shape, size = (len(block), len(columns)), len(block) * len(columns)
        scores = scores_memory[:size].reshape(shape)
        bins = bins_memory[:size].reshape(shape)
        gallery = rows[len(right) - len(columns) :]
        np.matmul(items.rows[block] / STEP, gallery.T, out=scores)
        # Conversion to integers cuts off: with a half added it rounds.
        scores += 1 / STEP + 0.5
        np.copyto(bins, scores, casting="unsafe")
        if items.has_roles:
            own = np.searchsorted(right, block)
            inside = np.flatnonzero(items.is_gallery[block])
            bins[inside, own[inside]] = _LEFT_OUT
        else:
            square = bins[:, : len(block)]
            np.copyto(square, _LEFT_OUT, where=np.tri(len(block), dtype=bool))
        if items.groups is not None:
            is_one_group = items.groups[block, None] == items.groups[columns]
            bins[is_one_group] = _LEFT_OUT
        yield bins, items.labels[block, None] == items.labels[columns]


def _count(totals: NDArray[np.int64], bins: NDArray[np.int64]) -> None:
    if bins.size > len(totals) // 16:
        totals += np.bincount(bins, minlength=len(totals))
    else:  # writing all bins for a few pairs would take longer
        np.add.at(totals, bins, 1)
