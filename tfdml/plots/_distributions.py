"""Draw the distributions of pair similarities and of k-occurrences."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfdml._core.arguments import finite, whole
from tfdml.figure_style import COLORS, legend_below, new_figure, plain_axes
from tfdml.metrics import hubness_of_occurrences
from tfdml.plots._checks import numbers

_BARS = 100
_NARROWEST, _WIDEST = 2e-5, 0.05  # bars, in cosine similarity


def plot_similarity_histograms(
    scores: ArrayLike,
    positives: ArrayLike,
    negatives: ArrayLike,
    *,
    threshold: float | None = None,
) -> Any:
    """Draw the densities of positive and negative pairs over their cosine similarity.

    The similarities are counted again in about 100 bars over those that occur. A bar is
    a whole number of steps wide, where a step is the least difference of two scores,
    but from 0.00002 to 0.05; the last bar ends half a step from the highest score. Each
    kind has the area 1, however many pairs it has, so that negatives do not hide
    positives.

    Args:
        scores: `[bins]`, rising: the similarities, or the middles of bins. Empty bins
            may be left out, as `tfdml.metrics.pair_counts` does.
        positives: `[bins]`, how many positive pairs each bin holds, at least 0 and at
            least one in all.
        negatives: `[bins]`, the same of negative pairs.
        threshold: Where to draw a vertical line with its value, such as a calibrated
            threshold. Default: none.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].patches` are the
        densities of positive and of negative pairs, as `StepPatch`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The lengths differ, the scores do not rise, a count is below 0, a
            number is not finite, or there is no pair of a kind.

    Example:
        >>> scores = np.linspace(-1, 1, 201)
        >>> figure = plot_similarity_histograms(
        ...     scores, 1 * (scores > 0.5), 1 * (scores < 0.7), threshold=0.6
        ... )
        >>> [patch.get_label() for patch in figure.axes[0].patches]
        ['50 positive pairs', '170 negative pairs']
    """
    middles = numbers("scores", scores)
    if (np.diff(middles) <= 0).any():
        place = int(np.argmax(np.diff(middles) <= 0))
        raise ValueError(
            "`scores` must rise. "
            f"Received: {middles[place]} and then {middles[place + 1]}."
        )
    counts = {
        f"{kind} pairs": _counts(name, row, len(middles))
        for kind, name, row in (
            ("positive", "positives", positives),
            ("negative", "negatives", negatives),
        )
    }
    marked = None if threshold is None else finite("threshold", threshold)
    edges = _bars(middles, middles[sum(counts.values()) > 0])
    figure = new_figure(7.0, 3.9)
    axes = figure.subplots()
    looks: tuple[tuple[str, Any], ...] = (
        (COLORS[0], "-"),
        (COLORS[1], (0, (4, 1.2))),
    )
    for (kind, row), (color, dashes) in zip(counts.items(), looks, strict=True):
        bars, _ = np.histogram(middles, edges, weights=row)
        density = bars / (row.sum() * np.diff(edges))
        label = f"{row.sum():,.0f} {kind}"
        axes.stairs(
            density,
            edges,
            fill=True,
            label=label,
            facecolor=(color, 0.3),
            edgecolor=color,
            linestyle=dashes,
            linewidth=1.6,
        )
    beyond = 2 * (edges[1] - edges[0])
    shown = [edges[0], edges[-1]] if marked is None else [edges[0], edges[-1], marked]
    axes.set_xlim(min(shown) - beyond, max(shown) + beyond)
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_formatter().set_useOffset(False)
    if marked is not None:
        axes.axvline(marked, color="black", linewidth=1.4, linestyle=(0, (6, 2)))
        axes.text(
            marked,
            1.01,
            f"threshold {marked:.4g}",
            transform=axes.get_xaxis_transform(),
            horizontalalignment="center",
            verticalalignment="bottom",
        )
    axes.set_xlabel("cosine similarity of the pair")
    axes.set_ylabel("density of pairs (area 1 each)")
    plain_axes(axes)
    legend_below(figure, axes.patches, [patch.get_label() for patch in axes.patches])
    return figure


def plot_hubness(occurrences: ArrayLike, k: int) -> Any:
    """Draw how often gallery items are among the k nearest neighbors of queries.

    Up to 9 occurrences each number has a point: the share of items that occur so often.
    Above, a point is the mean share of the numbers in an interval; intervals grow with
    the number and its distance from the mean, up to a fifth of the number, and those
    without items have no point. The dashed line is what random neighbors would give:
    the binomial distribution of Q draws of probability k / gallery, where
    Q = sum(occurrences) / k is the number of queries. Both axes are logarithmic, with a
    place for 0; that of the numbers is linear if they lie within one decade.

    Args:
        occurrences: N_k, integers `[gallery]`, at least 0, as
            `tfdml.metrics.k_occurrences` counts them. The sum is Q k.
        k: The number of neighbors of each query, from 1 to the size of the gallery.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].lines` are the items and
        the binomial distribution.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The shape is wrong, a count is below 0 or above Q, there are no
            neighbors, or their number is no multiple of k.
        TypeError: `occurrences` are not integers.

    Example:
        >>> figure = plot_hubness([0, 0, 1, 3], k=1)
        >>> figure.axes[0].lines[0].get_xydata().tolist()
        [[0.0, 0.5], [1.0, 0.25], [3.0, 0.25]]

    Reference:
        Radovanović, Nanopoulos and Ivanović, Hubs in Space: Popular Nearest Neighbors
        in High-Dimensional Data, JMLR 2010.
    """
    measured = hubness_of_occurrences(occurrences)
    counts = np.asarray(occurrences).astype("int64")
    k = whole("k", k)
    total, items = int(counts.sum()), len(counts)
    queries = total // k
    if not total or total % k or k > items or counts.max() > queries:
        raise ValueError(
            "`occurrences` must sum to Q k, where Q is the number of queries, at least "
            "1, none may exceed Q, and `k` may not exceed the gallery. "
            f"Received: sum {total}, largest {counts.max()}, {items} items, k={k}."
        )
    mean, spread = total / items, math.sqrt(total / items * (1 - k / items))
    starts = [0]
    while (n := starts[-1]) <= counts.max():
        starts.append(n + max(1, min(n // 5, round(max(spread, abs(n - mean)) / 4))))
    edges = np.array(starts)
    widths = np.diff(edges)
    shares = np.histogram(counts, edges)[0] / (items * widths)
    middles = edges[:-1] + (widths - 1) / 2
    filled = shares > 0
    figure = new_figure(7.0, 3.9)
    axes = figure.subplots()
    axes.set_yscale("log")
    lot, likely = _binomial(queries, k / items)
    least = min(shares[filled].min(), likely.max()) / 2
    lot, likely = lot[likely >= least], likely[likely >= least]
    axes.plot(middles[filled], shares[filled], "o-", color=COLORS[0], linewidth=1.2)
    axes.plot(lot, likely, color=COLORS[1], linestyle=(0, (5, 1.8)), linewidth=1.6)
    from matplotlib.ticker import FixedLocator, LogLocator

    low = min(middles[filled][0], lot[0])
    high = max(middles[filled][-1], lot[-1])
    if high > 10 * low:
        steps = range(1, 10) if high < 10 else (1, 2, 5) if high <= 2000 else (1,)
        ticks = [n * 10**p for p in range(len(str(int(high)))) for n in steps]
        axes.set_xscale("symlog", linthresh=1, linscale=0.5)
        axes.xaxis.set_major_locator(FixedLocator([0, *ticks]))
        axes.set_xlim(-0.1, 1.15 * high)
    most = min(1.4, 2 * max(shares.max(), likely.max()))
    axes.set_ylim(least, most)
    if most < 100 * least:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda n, _: f"{n:,g}")
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")
    axes.yaxis.set_minor_formatter(lambda *_: "")
    near = "as their nearest" if k == 1 else f"among their {k:,} nearest"
    axes.set_xlabel(f"number of queries that have the item {near}")
    axes.set_ylabel("% of items")
    axes.set_title(
        f"skewness {measured['skewness']:.2f}; {measured['anti_hubs']:.1%} anti-hubs "
        f"(0 queries); largest hub: {counts.max():,} of {queries:,} queries",
        fontsize=9,
    )
    plain_axes(axes)
    names = [f"{items:,} gallery items", "neighbors drawn at random (binomial)"]
    legend_below(figure, axes.lines, names)
    return figure


def _bars(
    scores: NDArray[np.float64], occurring: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the edges of about 100 bars, none of which cuts through a bin."""
    step = min(np.diff(scores).min(initial=_WIDEST), _WIDEST)
    least, most = occurring[0] - step / 2, occurring[-1] + step / 2
    width = step * max(
        1, round((most - least) / step / _BARS), math.ceil(_NARROWEST / step)
    )
    count = math.ceil((most - least) / width - 1e-6)
    return most - width * np.arange(count, -1, -1)


def _counts(argument: str, values: ArrayLike, bins: int) -> NDArray[np.float64]:
    counts = numbers(argument, values, low=0)
    if len(counts) != bins:
        raise ValueError(
            f"`{argument}` must be as long as `scores`: {bins}. "
            f"Received: {len(counts)}."
        )
    if not counts.any():
        raise ValueError(
            f"`{argument}` must count at least one pair. Received: only zeros."
        )
    return counts


def _binomial(
    trials: int, probability: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numbers of successes around the mean, and the probability of each."""
    mean = trials * probability
    spread = 8 * math.sqrt(mean * (1 - probability))
    low, high = max(0, mean - spread), min(trials, mean + spread + 10)
    successes = np.unique(np.linspace(low, high, 400).round())
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(n + 1)
        - math.lgamma(trials - n + 1)
        + n * math.log(probability)
        # 0 log 0 is 0 here.
        + ((trials - n) * math.log1p(-probability) if n < trials else 0)
        for n in successes
    ]
    return successes, np.exp(logs)
