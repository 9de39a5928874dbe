"""Compute Wilson's score interval of a share."""

import math

NORMAL_QUANTILE = 1.959963984540054
"""The quantile of 0.975: an interval of so many deviations has 95% confidence."""


def score_interval(
    share: float, trials: float, quantile: float = NORMAL_QUANTILE
) -> tuple[float, float]:
    """Return Wilson's interval of a share p of n trials, for a quantile z.

    It is (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).

    Args:
        share: p, from 0 to 1.
        trials: n, above 0; need not be whole.
        quantile: z, half the width in standard deviations.
    """
    square = quantile**2 / trials
    center = share + square / 2
    half = math.sqrt(square * share * (1 - share) + square**2 / 4)
    low, high = (center - half) / (1 + square), (center + half) / (1 + square)
    return max(0.0, low), min(1.0, high)
