"""Compute confidence intervals of means over queries and of shares."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import whole
from tfdml._core.arrays import as_array
from tfdml._core.labels import class_codes
from tfdml._core.wilson import score_interval

_DRAWN_AT_ONCE = 2**22  # classes: 32 MiB of numbers


class Difference(NamedTuple):
    """How much higher one mean is than another, with its interval."""

    difference: float
    """mean(others) - mean(values): above 0 where `others` are higher."""
    low: float
    high: float
    is_significant: bool
    """Whether the interval from `low` to `high` leaves out 0."""


def bootstrap_interval(
    values: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the interval of a mean by resampling whole classes.

    The percentile bootstrap: as many classes as there are get drawn with replacement,
    each with all its queries; the mean over the drawn queries is computed; and again.
    Queries of one class share their items, so that drawing queries one by one would
    give an interval that is too narrow.

    The interval says how far the mean would move with other classes, not with another
    seed of training. With few classes it is too narrow.

    Args:
        values: A number for each query, such as its Precision@1, float `[Q]`, finite.
        groups: The class of each query, integers or strings `[Q]`.
        confidence: The share of resamples inside, above 0 and below 1.
        resamples: How often classes are drawn.
        seed: Of the draws.

    Returns:
        The lower and the upper end. Equal values give an interval of no length.

    Raises:
        ValueError: The shapes do not fit, a value is not finite, an argument is out of
            range, or there are fewer than two classes: how classes differ is then
            unknown.

    Example:
        >>> bootstrap_interval([1, 1, 0, 1], [0, 0, 1, 1], resamples=100)
        (0.5, 1.0)

    Reference:
        Davison and Hinkley, Bootstrap Methods and their Application, Cambridge
        University Press 1997, section 3.8 for drawing clusters, 5.3 for percentiles.
    """
    values, class_of = _checked(values, groups, "values")
    return ratio_interval(
        np.bincount(class_of, weights=values),
        np.bincount(class_of),
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )


def paired_difference(
    values: ArrayLike,
    others: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Difference:
    """Compare the means of two models over the same queries.

    The interval is that of `bootstrap_interval` for others - values, query by query:
    what is hard for both models cancels, so that it finds differences much smaller than
    the intervals of the two means.

    With several runs of a model, by other seeds, its mean is that of all, and each
    resample draws as many of its runs as there are with replacement, too: the interval
    then covers other classes and other seeds. (With two or three runs it is too narrow;
    with one, it says nothing of seeds.)

    Args:
        values: A number for each query by the one model, float `[Q]`, or `[S, Q]` for
            S runs of it, finite.
        others: The same queries by the other model, `[Q]` or `[S', Q]`, finite.
        groups: The class of each query, integers or strings `[Q]`.
        confidence: The share of resamples inside, above 0 and below 1.
        resamples: How often classes are drawn.
        seed: Of the draws.

    Returns:
        mean(others) - mean(values), its interval, and whether that leaves out 0.

    Raises:
        ValueError: As `bootstrap_interval`.

    Example:
        >>> found = paired_difference([0, 0, 0], [1, 1, 1], ["a", "b", "c"])
        >>> found.difference, found.is_significant
        (1.0, True)
    """
    before, class_of = _checked(values, groups, "values", most_axes=2)
    after, _ = _checked(others, groups, "others", most_axes=2)
    sides = [np.atleast_2d(side) for side in (before, after)]
    counts = np.bincount(class_of)
    sums = [[np.bincount(class_of, weights=run) for run in side] for side in sides]
    means = _resampled_means(
        np.concatenate(sums), counts, resamples=resamples, seed=seed
    )
    generator = np.random.default_rng([seed, 1])
    drawn = []
    for side in (means[:, : len(sides[0])], means[:, len(sides[0]) :]):
        runs = generator.integers(0, side.shape[1], side.shape)
        drawn.append(np.take_along_axis(side, runs, axis=1).mean(axis=1))
    low, high = _interval(drawn[1] - drawn[0], confidence)
    largest = max(float(np.abs(side).max()) for side in sides)
    rounding = 1e-12 * largest  # of sums that cancel
    is_significant = bool(low > rounding or high < -rounding)
    difference = float(sides[1].mean() - sides[0].mean())
    return Difference(difference, low, high, is_significant)


def ratio_interval(
    sums: ArrayLike,
    counts: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the interval of sum(sums) / sum(counts) by resampling whole classes.

    It is `bootstrap_interval` where the sum and the number of values of each class are
    known, such as the pairs accepted and all pairs. Classes without values are left
    out.

    Args:
        sums: The sum of each class, float `[C]`, finite.
        counts: The number of values of each class, integers `[C]`, at least 0.
        confidence: The share of resamples inside, above 0 and below 1.
        resamples: How often classes are drawn.
        seed: Of the draws.

    Returns:
        The lower and the upper end.

    Raises:
        ValueError: As `bootstrap_interval`.

    Example:
        >>> ratio_interval([1, 4], [2, 4], resamples=100)
        (0.5, 1.0)
    """
    sums, counts = np.asarray(sums, np.float64), np.asarray(counts)
    if sums.ndim != 1 or sums.shape != counts.shape or not np.isfinite(sums).all():
        raise ValueError(
            "`sums` and `counts` must be finite and have the same shape [C]. "
            f"Received: shapes {sums.shape} and {counts.shape}."
        )
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise ValueError(
            "`counts` must hold integers of at least 0. "
            f"Received: dtype={counts.dtype}, {counts.min(initial=0)}."
        )
    is_used = counts > 0
    means = _resampled_means(
        sums[None, is_used], counts[is_used], resamples=resamples, seed=seed
    )
    return _interval(means[:, 0], confidence)


def paired_share(
    parts: ArrayLike,
    wholes: ArrayLike,
    groups: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float] | None:
    """Return mean(parts) / mean(wholes) and its interval by resampling whole classes.

    Args:
        parts: A number for each query, float `[Q]`, finite.
        wholes: Another number for each query, `[Q]`, finite.
        groups: The class of each query, integers or strings `[Q]`.
        confidence: The share of resamples inside, above 0 and below 1.
        resamples: How often classes are drawn.
        seed: Of the draws.

    Returns:
        The ratio and the ends of its interval, over the resamples in which the mean of
        the wholes is above 0; None if the interval of that mean is not above 0.

    Raises:
        ValueError: As `bootstrap_interval`.

    Example:
        >>> paired_share([1, 0, 1, 0], [2, 2, 2, 2], [0, 0, 1, 1])
        (0.25, 0.25, 0.25)
    """
    first, class_of = _checked(parts, groups, "parts")
    second, _ = _checked(wholes, groups, "wholes")
    sums = [np.bincount(class_of, weights=side) for side in (first, second)]
    means = _resampled_means(
        np.stack(sums), np.bincount(class_of), resamples=resamples, seed=seed
    )
    rounding = 1e-12 * float(np.abs(second).max())
    if _interval(means[:, 1], confidence)[0] <= rounding:
        return None
    drawn, of = means[means[:, 1] > rounding].T
    share = float(first.mean() / second.mean())
    return share, *_interval(drawn / of, confidence)


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a share by Wilson's score.

    With p = k / n and z = 1.96: (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) /
    (1 + z^2 / n). It holds for few trials and for shares of 0 and 1 too. It assumes
    independent trials; queries of one class share their items, so that with few classes
    the true interval is wider (`tfdml.metrics.bootstrap_interval` draws classes).

    Args:
        successes: k, from 0 to n.
        trials: n, at least 1.

    Returns:
        The lower and the upper end, from 0 to 1.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> low, high = wilson_interval(9, 10)
        >>> round(low, 3), round(high, 3)
        (0.596, 0.982)

    Reference:
        Wilson, Probable Inference, the Law of Succession, and Statistical Inference,
        JASA 1927.
    """
    trials, successes = whole("trials", trials), whole("successes", successes, least=0)
    if successes > trials:
        raise ValueError(
            f"`successes` must be at most `trials`. Received: {successes} of {trials}."
        )
    return score_interval(successes / trials, trials)


def _resampled_means(
    sums: NDArray[np.float64],
    counts: NDArray[np.int64],
    *,
    resamples: int,
    seed: int,
    at_once: int = _DRAWN_AT_ONCE,
) -> NDArray[np.float64]:
    """Draw classes, and return for each row of `sums [R, C]` its mean, `[draws, R]`."""
    if len(counts) < 2:
        raise ValueError(
            "An interval needs at least two classes: how classes differ is not known "
            f"from fewer. Received: {len(counts)}."
        )
    resamples = whole("resamples", resamples)
    generator = np.random.default_rng(whole("seed", seed, least=0))
    means = np.empty((resamples, len(sums)))
    step = max(1, at_once // len(counts))
    for start in range(0, resamples, step):
        shape = (min(step, resamples - start), len(counts))
        drawn = generator.integers(0, len(counts), shape)
        sizes = counts[drawn].sum(axis=1)
        for run, of_class in enumerate(sums):
            means[start : start + step, run] = of_class[drawn].sum(axis=1) / sizes
    return means


def _interval(means: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise ValueError(
            f"`confidence` must be above 0 and below 1. Received: {confidence}."
        )
    outside = (1 - confidence) / 2
    low, high = np.quantile(means, [outside, 1 - outside])
    return float(low), float(high)


def _checked(
    values: ArrayLike, groups: ArrayLike, name: str, *, most_axes: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    numbers = as_array(name, values)
    if numbers.dtype.kind not in "fiub" or not 1 <= numbers.ndim <= most_axes:
        raise ValueError(
            f"`{name}` must be real numbers [Q]. "
            f"Received: shape={numbers.shape}, dtype={numbers.dtype}."
        )
    if not np.isfinite(numbers).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise ValueError(
            f"`{name}` must be finite. Received: {numbers[place]} at {place[-1]}."
        )
    return numbers.astype(np.float64), class_codes("groups", groups, numbers.shape[-1])
