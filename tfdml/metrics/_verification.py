"""Verify whether two items are of one class, over all pairs of items."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arrays import as_array
from tfdml.messages import shown
from tfdml.metrics._intervals import ratio_interval
from tfdml.metrics._pair_counts import STEP, PairCounts, accepted_by_class, pair_counts
from tfdml.metrics._task import RetrievalTask

_USUAL_RATES = (1e-1, 1e-2, 1e-3, 1e-4)


class OperatingPoint(NamedTuple):
    """A threshold chosen by its false accepts, and what it accepts."""

    false_accept_rate: float
    """The share of negative pairs that was allowed to be accepted."""
    true_accept_rate: float
    """The share of positive pairs that is accepted."""
    threshold: float
    """A pair is accepted where its similarity is at least this."""


def roc_curve(
    counts: PairCounts,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the ROC curve of the pairs.

    At a threshold t a pair is accepted where its similarity is at least t. Pairs that
    tie are accepted together, which draws a slanted line. Points inside a horizontal or
    a vertical line are left out.

    Args:
        counts: From `tfdml.metrics.pair_counts`.

    Returns:
        The share of negative pairs accepted (false accept rate) and of positive pairs
        accepted (true accept rate), both from 0 to 1 and rising, and the thresholds,
        falling; float64 `[P]`. The first threshold accepts none: it is one step of
        2^-20 above the highest similarity.

    Raises:
        ValueError: There is no positive or no negative pair.

    Example:
        >>> counts = pair_counts([[1, 0], [1, 0], [0, 1]], [0, 0, 1])
        >>> false, true, thresholds = roc_curve(counts)
        >>> false.tolist(), true.tolist()
        ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """
    positives, negatives = _checked_totals(counts)
    false, true, thresholds = _cumulated(counts)
    # 1: only positives, 2: only negatives, 3: both, a slanted line of its own.
    kinds = (np.diff(true) > 0) + 2 * (np.diff(false) > 0)
    is_corner = np.ones(len(false), bool)
    is_corner[1:-1] = (kinds[1:] != kinds[:-1]) | (kinds[1:] == 3)
    return (
        false[is_corner] / negatives,
        true[is_corner] / positives,
        thresholds[is_corner],
    )


def roc_auc(counts: PairCounts) -> float:
    """Return the area under the ROC curve of the pairs.

    It is the share of (positive pair, negative pair) of which the positive pair has the
    higher similarity; ties count half.

    Args:
        counts: From `tfdml.metrics.pair_counts`.

    Returns:
        The area: 0.5 by chance, 1 where a threshold separates all.

    Raises:
        ValueError: There is no positive or no negative pair.

    Example:
        >>> roc_auc(pair_counts([[1, 0], [1, 0], [0, 1]], [0, 0, 1]))
        1.0

    Reference:
        Hanley and McNeil, The Meaning and Use of the Area under a Receiver Operating
        Characteristic (ROC) Curve, Radiology 1982.
    """
    positives, negatives = _checked_totals(counts)
    higher = positives - np.cumsum(counts.positives) + counts.positives / 2
    return float((higher * counts.negatives).sum()) / (positives * negatives)


def precision_recall(
    counts: PairCounts,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return precision and recall of accepting pairs, by threshold.

    precision = positive pairs accepted / pairs accepted, recall = positive pairs
    accepted / positive pairs: the other meaning of recall, not the Recall@k of a
    search. Precision depends on the share of positive pairs, which falls with the
    number of classes.

    Args:
        counts: From `tfdml.metrics.pair_counts`.

    Returns:
        Precision, recall (rising, the last is 1) and thresholds (falling), float64
        `[P]`, one point for each similarity that a positive pair has.

    Raises:
        ValueError: There is no positive or no negative pair.

    Example:
        >>> counts = pair_counts([[1, 0], [1, 0], [0, 1]], [0, 0, 1])
        >>> precision, recall, thresholds = precision_recall(counts)
        >>> precision.tolist(), recall.tolist(), thresholds.tolist()
        ([1.0], [1.0], [1.0])
    """
    positives, _ = _checked_totals(counts)
    false, true, thresholds = _cumulated(counts)
    is_point = np.flatnonzero(np.diff(true)) + 1
    true, false = true[is_point], false[is_point]
    return true / (true + false), true / positives, thresholds[is_point]


def true_accept_rates(
    counts: PairCounts, false_accept_rates: Sequence[float] | None = None
) -> list[OperatingPoint]:
    """Choose the threshold of each false accept rate that accepts the most positives.

    Of the thresholds that accept at most the wanted share of the negative pairs, it is
    the lowest similarity that some pair has. Where even the highest accepts too many
    the threshold is one step of 2^-20 above and accepts none.

    Args:
        counts: From `tfdml.metrics.pair_counts`.
        false_accept_rates: Each from 1 / negative pairs to below 1: a smaller one
            cannot be measured. `None`: those of 1e-1, 1e-2, 1e-3 and 1e-4 that the
            negative pairs can measure, which may be none.

    Returns:
        The points, in the order of the rates.

    Raises:
        ValueError: There is no positive or no negative pair, or a rate is out of range.

    Example:
        >>> counts = pair_counts([[1, 0], [1, 0], [0, 1]], [0, 0, 1])
        >>> true_accept_rates(counts, [0.5])[0].true_accept_rate
        1.0

    Reference:
        Schroff, Kalenichenko and Philbin, FaceNet, CVPR 2015, section 4: VAL at FAR.
    """
    positives, negatives = _checked_totals(counts)
    # A share of 3 / 30 must pass a rate of 0.1, whatever their rounding.
    pairs = negatives * (1 + 1e-12)
    if false_accept_rates is None:
        rates = [rate for rate in _USUAL_RATES if rate * pairs >= 1]
    else:
        rates = _checked_rates(false_accept_rates)
        for rate in rates:
            if not (rate < 1 and rate * pairs >= 1):
                raise ValueError(
                    "`false_accept_rates` must be below 1 and at least 1 / negative "
                    f"pairs: {negatives} cannot measure less. Received: {rate}."
                )
    false, true, thresholds = _cumulated(counts)
    points = []
    for rate in rates:
        place = int(np.searchsorted(false, np.floor(rate * pairs), "right")) - 1
        points.append(
            OperatingPoint(
                rate, float(true[place] / positives), float(thresholds[place])
            )
        )
    return points


def verification_metrics(
    embeddings: ArrayLike | RetrievalTask,
    labels: ArrayLike | None = None,
    false_accept_rates: Sequence[float] | None = None,
    *,
    is_query: ArrayLike | None = None,
    is_gallery: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    counts: PairCounts | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, float]:
    """Compare all pairs of items by cosine similarity and verify their classes.

    - `pair_auc`: see `roc_auc`.
    - `tar_at_far_0.001` (for each rate): the share of positive pairs accepted where at
      most that share of negative pairs is; see `true_accept_rates`.
    - `tar_at_far_0.001_low` and `_high`: its interval by resampling classes at a
      fixed threshold; see `bootstrap_interval`. They are left out where fewer than two
      classes have positive pairs: how classes differ is then unknown.
    - `threshold_at_far_0.001`: the least similarity that is accepted.
    - `positive_pairs` and `negative_pairs`: their numbers.

    The threshold is chosen on the same pairs. To use it elsewhere, choose it on a
    validation set.

    Args:
        embeddings: Float array `[N, dimension]`, finite; or a `RetrievalTask`, which
            holds labels, roles and groups too.
        labels: Integers or strings `[N]`.
        false_accept_rates: As in `true_accept_rates`.
        is_query: Bool array `[N]`; see `tfdml.metrics.pair_counts` for which pairs
            count.
        is_gallery: Bool array `[N]`.
        groups: Integers or strings `[N]`: pairs within one group are left out.
        counts: What `pair_counts` returned for the same arguments, if it was called
            already.
        confidence: Of the intervals, above 0 and below 1.
        resamples: How often classes are drawn.
        seed: Of the draws.

    Returns:
        The metrics.

    Raises:
        ValueError: An argument does not fit, or there is no positive or no negative
            pair.

    Example:
        >>> rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [1.0, 1.0]]
        >>> metrics = verification_metrics(rows, [0, 0, 1, 1, 2], [0.2])
        >>> metrics["pair_auc"], metrics["tar_at_far_0.2"]
        (1.0, 1.0)
    """
    task = RetrievalTask.of(
        embeddings, labels, is_query=is_query, is_gallery=is_gallery, groups=groups
    )
    counts = counts or pair_counts(task)
    results = {"pair_auc": roc_auc(counts)}
    points = true_accept_rates(counts, false_accept_rates)
    thresholds = [point.threshold for point in points]
    accepted, pairs = accepted_by_class(task, thresholds)
    positives, negatives = _checked_totals(counts)
    if int(pairs.sum()) != positives:
        raise ValueError(
            f"`counts` must be of the same pairs. Received: {positives} positive pairs "
            f"where the labels have {int(pairs.sum())}."
        )
    for point, sums in zip(points, accepted, strict=True):
        name = f"tar_at_far_{point.false_accept_rate!r}"  # all digits: no two share it
        results[name] = point.true_accept_rate
        if np.count_nonzero(pairs) >= 2:
            results[f"{name}_low"], results[f"{name}_high"] = ratio_interval(
                sums, pairs, confidence=confidence, resamples=resamples, seed=seed
            )
        results[f"threshold_at_far_{point.false_accept_rate!r}"] = point.threshold
    return results | {"positive_pairs": positives, "negative_pairs": negatives}


def _checked_rates(false_accept_rates: Sequence[float]) -> list[float]:
    rates = as_array("false_accept_rates", false_accept_rates)
    if rates.ndim != 1 or (rates.size and rates.dtype.kind not in "iuf"):
        raise ValueError(
            "`false_accept_rates` must be numbers in a sequence. "
            f"Received: {shown(false_accept_rates)}."
        )
    return [float(rate) for rate in rates]


def _checked_totals(counts: PairCounts) -> tuple[int, int]:
    positives, negatives = int(counts.positives.sum()), int(counts.negatives.sum())
    for name, total in (("positive", positives), ("negative", negatives)):
        if not total:
            raise ValueError(
                "Verification needs pairs of one label and pairs of two labels. "
                f"Received: no {name} pair."
            )
    return positives, negatives


def _cumulated(
    counts: PairCounts,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return negatives and positives accepted, from none to all, and thresholds."""
    false, true = (
        np.concatenate(([0], np.cumsum(values[::-1])))
        for values in (counts.negatives, counts.positives)
    )
    scores = counts.scores[::-1]
    return false, true, np.concatenate((scores[:1] + STEP, scores))
