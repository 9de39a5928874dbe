"""Measure whether one threshold suits all classes: OPIS."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml.messages import shown
from tfdml.metrics._pair_counts import PairCounts, pair_counts, pairs_by_class
from tfdml.metrics._task import RetrievalTask
from tfdml.metrics._verification import true_accept_rates


def opis(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    false_accept_rates: tuple[float, float] = (0.01, 0.1),
    *,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    counts: PairCounts | None = None,
    points: int = 101,
) -> dict[str, float]:
    """Measure how differently a threshold works for different classes.

    For a class, accept the pairs within a Euclidean distance d at unit length. Its
    utility is the harmonic mean of two shares: of its positive pairs that are accepted,
    and of its negative pairs, with one item of another class, that are not,

        U_i(d) = 2 a_i(d) r_i(d) / (a_i(d) + r_i(d)),   0 if both are 0

        OPIS = mean over classes i and distances d of (U_i(d) - mean over i of U_i(d))^2

    It is 0 where each threshold works for all classes alike, however well that is: look
    at it beside the accuracy. Distances are equally spaced in the range that a user
    would calibrate, between the thresholds of two false accept rates of all pairs.
    Classes without a positive or without a negative pair do not count.

    It goes through all pairs once, block by block, as `pair_counts` does. With
    `is_query` or `is_gallery` the class of a pair is the query's; without, a negative
    pair counts for both of its classes.

    Args:
        embeddings: Float array `[N, dimension]`, finite; or a `RetrievalTask`, which
            holds labels, roles and groups too.
        labels: Integers or strings `[N]`.
        false_accept_rates: The ends of the range, rising, as in `true_accept_rates`.
        is_query: Bool array `[N]`; see `pair_counts` for which pairs count.
        is_gallery: Bool array `[N]`.
        groups: Integers or strings `[N]`: pairs within one group are left out.
        counts: What `pair_counts` returned for the same arguments, if it was called
            already.
        points: How many distances there are, at least 2.

    Returns:
        `opis`; `utility`, the mean of all utilities, from 0 to 1; and
        `calibrated_classes`, how many classes count.

    Raises:
        ValueError: An argument does not fit, there are too few negative pairs for the
            rates, or fewer than two classes count.

    Example:
        >>> rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [1.0, 0.8]]
        >>> found = opis(rows, [0, 0, 1, 1], (0.25, 0.5))
        >>> found["opis"] > 0, found["calibrated_classes"]
        (True, 2)

    Reference:
        Zhang et al., Threshold-Consistent Margin Loss for Open-World Deep Metric
        Learning, ICLR 2024. The formula follows a description of it by others: neither
        the equations of the paper nor code of its authors were at hand.
    """
    task = RetrievalTask.of(
        embeddings, labels, is_query=is_query, is_gallery=is_gallery, groups=groups
    )
    points = whole("points", points, 2)
    rates = list(false_accept_rates)
    if len(rates) != 2 or not rates[0] < rates[1]:
        raise ValueError(
            "`false_accept_rates` must be two rates, the lower first. "
            f"Received: {shown(false_accept_rates)}."
        )
    counts = counts or pair_counts(task)
    ends = [point.threshold for point in true_accept_rates(counts, rates)]
    positives, negatives = pairs_by_class(task, _thresholds(ends, points))
    both = (positives[:, -1] > 0) & (negatives[:, -1] > 0)
    if np.count_nonzero(both) < 2:
        raise ValueError(
            "`labels` must have at least two classes with positive and negative pairs. "
            f"Received: {np.count_nonzero(both)}."
        )
    utilities = _utilities(positives[both], negatives[both])
    spread = np.square(utilities - utilities.mean(axis=0)).mean()
    return {
        "opis": float(spread),
        "utility": float(utilities.mean()),
        "calibrated_classes": len(utilities),
    }


def _thresholds(ends: list[float], points: int) -> NDArray[np.float64]:
    """Return similarities whose distances are equally spaced, falling."""
    first, last = np.sqrt(np.maximum(2 - 2 * np.array(ends), 0))
    similarities = 1 - np.square(np.linspace(first, last, points)) / 2
    # Pairs tie at both ends, which rounding must not move.
    similarities = np.clip(similarities, ends[1], ends[0])
    similarities[[0, -1]] = ends
    return similarities


def _utilities(
    positives: NDArray[np.int64], negatives: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return U of each class and threshold, from the pairs accepted and, last, all."""
    accepted = positives[:, :-1] / positives[:, -1:]
    refused = 1 - negatives[:, :-1] / negatives[:, -1:]
    total = accepted + refused
    return 2 * accepted * refused / np.where(total > 0, total, 1)
