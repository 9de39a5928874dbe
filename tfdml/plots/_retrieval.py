"""Draw retrieval curves of runs: Recall@k, precision and recall, ROC."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfdml._core.arguments import whole
from tfdml.figure_style import draw_runs, legend_below, new_figure, plain_axes
from tfdml.messages import shown
from tfdml.plots._checks import numbers, runs_of

_WIDTH, _HEIGHT = 7.0, 4.3
_POINTS = 500  # a line of more is sampled: nobody sees them, but files hold them
_LEAST_RATE = 1e-6
_LEAST_SPAN = 0.02  # of the axis of recall: less would show noise as if it mattered


def plot_recall_at_k(first_ranks: Mapping[str, ArrayLike], *, most: int = 1000) -> Any:
    """Draw the share of queries whose first positive has rank k or less.

    This is metric learning's Recall@k, 1 for a query with at least one positive among
    its k nearest: not the share of all positives that are found. k has a log axis from
    1 to `most`, or to the last rank of any run (but at least 10) if that is less, as
    all curves are 1 from there on. The other axis spans the values.

    Args:
        first_ranks: By name of run: integers `[Q]`, at least 1, the rank of each
            query's nearest positive. Queries without positives have no rank: leave
            them out.
        most: The largest k, at least 2, default 1000.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].lines` are the runs, in
        the mapping's order: at each k up to about 80, then at about 80 k a decade.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: `first_ranks` is not a mapping.
        ValueError: There is no run, a run has no query, a rank is below 1 or not an
            integer, or `most` is below 2.

    Example:
        >>> figure = plot_recall_at_k({"triplet": [1, 1, 4], "top-k": [1, 1, 2]})
        >>> figure.axes[0].lines[0].get_ydata()[:4].round(3).tolist()
        [0.667, 0.667, 0.667, 1.0]

    Reference:
        Song, Xiang, Jegelka and Savarese, Deep Metric Learning via Lifted Structured
        Feature Embedding, CVPR 2016, section 6.
    """
    most = whole("most", most, 2)
    ranks = {}
    for name, values in runs_of("first_ranks", first_ranks).items():
        argument = f"first_ranks[{name!r}]"
        ranks[name] = np.sort(numbers(argument, values, low=1))
        if (ranks[name] % 1).any():
            raise ValueError(
                f"`{argument}` must be integers. Received: {shown(values)}."
            )
    last = min(most, max(10, *(int(row[-1]) for row in ranks.values())))
    ks = np.unique(np.geomspace(1, last, _POINTS).round())
    curves = {
        name: (ks, np.searchsorted(row, ks, side="right") / len(row))
        for name, row in ranks.items()
    }
    figure, axes = _empty("k, the number of neighbors", "Recall@k (% of queries)")
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    steps = (1, 2, 5) if last <= 2000 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda k, _: f"{k:,.0f}")
    axes.yaxis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}")
    draw_runs(axes, curves, clip_on=False)
    axes.set_xlim(1, last)
    low, high = axes.get_ylim()
    high = max(min(high, 1), _LEAST_SPAN)
    axes.set_ylim(max(min(low, high - _LEAST_SPAN), 0), high)
    return _with_legend(figure)


def plot_precision_recall(curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Any:
    """Draw the precision of rankings against their recall.

    Here recall is the share of all of a query's positives that are found. What is
    drawn is what is given: usually the mean over queries of the interpolated precision
    p(r) = max of the precision at any recall of at least r, at the levels r.

    Args:
        curves: By name of run: recall `[L]`, not falling, and precision `[L]`, each
            from 0 to 1. The runs may have different levels.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].lines` are the runs, in
        the mapping's order.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: `curves` is not a mapping.
        ValueError: There is no run, the two lengths differ, or a number is NaN or not
            from 0 to 1, or recall falls.

    Example:
        >>> figure = plot_precision_recall({"triplet": ([0, 0.5, 1], [1, 0.9, 0.2])})
        >>> figure.axes[0].lines[0].get_ydata().tolist()
        [1.0, 0.9, 0.2]

    Reference:
        Manning, Raghavan and Schütze, Introduction to Information Retrieval, Cambridge
        University Press 2008, section 8.4, equation 8.7.
    """
    checked = _pairs_of("curves", curves, ("recall", "precision"))
    figure, axes = _empty("recall", "mean interpolated precision")
    draw_runs(axes, checked, clip_on=False, zorder=3)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    return _with_legend(figure)


def plot_roc(curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Any:
    """Draw the ROC of pair verification with a log axis of false positive rates.

    A pair counts as positive if its similarity reaches a threshold. The curve at x is
    the true positive rate of the lowest threshold whose false positive rate is at most
    x: a step from each point to the next, without the line between them, which only a
    randomly chosen threshold would reach. The axis begins at the smallest false
    positive rate above 0 of any run, but not below 1e-6 or above 0.1. The dotted gray
    line is chance: both rates are equal.

    Args:
        curves: By name of run: false positive rates `[L]` and true positive rates
            `[L]`, from 0 to 1, neither falling: from the highest threshold to the
            lowest.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].lines` are the runs, in
        the mapping's order, then chance. Each line is the points within the axis; one
        of over 500 points is its values at 500 rates.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: `curves` is not a mapping.
        ValueError: There is no run, the two lengths differ, or a number is NaN or not
            from 0 to 1, or a rate falls.

    Example:
        >>> figure = plot_roc({"triplet": ([0, 0.01, 1], [0.5, 0.8, 1])})
        >>> figure.axes[0].lines[0].get_xydata().tolist()
        [[0.01, 0.8], [1.0, 1.0]]
    """
    names = ("false positive rates", "true positive rates")
    checked = _pairs_of("curves", curves, names, both_rise=True)
    above_0 = [fpr[fpr > 0] for fpr, _ in checked.values()]
    least = min((row[0] for row in above_0 if row.size), default=_LEAST_RATE)
    least = min(max(least, _LEAST_RATE), 0.1)
    drawn = {name: _from(least, *curve) for name, curve in checked.items()}
    figure, axes = _empty("false positive rate", "true positive rate")
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    draw_runs(axes, drawn, drawstyle="steps-post", clip_on=False, zorder=3)
    chance = np.geomspace(least, 1, 100)
    axes.plot(chance, chance, color="#9A9A9A", linewidth=1.2, linestyle=":")
    if least >= 0.01:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda rate, _: f"{rate:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(least, 1)
    axes.set_ylim(0, 1)
    return _with_legend(figure, "chance")


def _from(
    least: float, fpr: np.ndarray, tpr: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the curve from the rate `least` up, of at most 500 points."""
    if len(fpr) > _POINTS:
        rates = np.geomspace(least, 1, _POINTS)
    else:
        rates = np.unique([least, *fpr[fpr > least], 1])
    # The last point of a rate is the highest.
    places = np.searchsorted(fpr, rates, side="right") - 1
    return rates, np.where(places < 0, 0, tpr[np.maximum(places, 0)])


def _pairs_of(
    argument: str,
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    names: tuple[str, str],
    *,
    both_rise: bool = False,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return x and y of each run, from 0 to 1 and as long as each other."""
    checked = {}
    for run, pair in runs_of(argument, curves).items():
        if len(pair) != 2:
            raise ValueError(
                f"`{argument}[{shown(run)}]` must be a pair: {' and '.join(names)}. "
                f"Received: {len(pair)} values."
            )
        x, y = (
            numbers(f"{argument}[{run!r}]: {name}", row, low=0, high=1)
            for name, row in zip(names, pair, strict=True)
        )
        if len(x) != len(y):
            raise ValueError(
                f"`{argument}[{shown(run)}]` must be as many {names[0]} as {names[1]}. "
                f"Received: {len(x)} and {len(y)}."
            )
        for name, row in zip(names, (x, y) if both_rise else (x,), strict=False):
            if (np.diff(row) < 0).any():
                place = int(np.argmax(np.diff(row) < 0))
                raise ValueError(
                    f"`{argument}[{shown(run)}]`: {name} must not fall. Received: "
                    f"{row[place]} and then {row[place + 1]}."
                )
        checked[run] = x, y
    return checked


def _empty(x_label: str, y_label: str) -> tuple[Any, Any]:
    figure = new_figure(_WIDTH, _HEIGHT)
    axes = figure.subplots()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    plain_axes(axes)
    return figure, axes


def _with_legend(figure: Any, *more: str) -> Any:
    lines = figure.axes[0].lines
    names = [line.get_label() for line in lines[: len(lines) - len(more)]]
    legend_below(figure, lines, [*names, *more])
    return figure
