"""Draw a validation metric against iterations and against sampled triplets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfdml._core.fonts import set_text
from tfdml.figure_style import draw_runs, legend_below, new_figure, plain_axes
from tfdml.messages import shown
from tfdml.plots._checks import numbers, runs_of

_LOG_SPAN = 100


def plot_training(
    histories: Mapping[str, Mapping[str, Sequence[float]]],
    x: Mapping[str, ArrayLike],
    *,
    metric: str,
    x_label: str,
) -> Any:
    """Draw a metric of each run's history against the cost of training until then.

    The x axis is logarithmic where its values span more than two decades and half of
    some run's values would crowd into the first tenth of a linear axis, as sampled
    triplets do that differ by orders of magnitude between runs. (Evenly spaced
    iterations stay on a linear axis, however many.) A 0 is then drawn before the first
    decade.

    Args:
        histories: By name of run: its metrics by name, each `[E]`, one value per
            evaluation.
        x: By name of run: `[E]`, at least 0 and rising, such as the number of
            iterations or of sampled triplets at each evaluation.
        metric: Which metric to draw; also the label of the y axis.
        x_label: What x is, with its unit.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].lines` are the runs, in
        the order of the histories.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: `histories` or `x` is not a mapping.
        ValueError: There is no run, a history lacks the metric, the names of runs or
            the lengths differ, or a number is NaN or infinite.

    Example:
        >>> histories = {"triplet": {"recall_at_1": [0.4, 0.6]}}
        >>> figure = plot_training(
        ...     histories,
        ...     {"triplet": [100, 200]},
        ...     metric="recall_at_1",
        ...     x_label="iterations",
        ... )
        >>> figure.axes[0].lines[0].get_xydata().tolist()
        [[100.0, 0.4], [200.0, 0.6]]
    """
    values = {}
    for run, history in runs_of("histories", histories).items():
        if metric not in history:
            raise ValueError(
                f"`metric` must be in every history; that of {shown(run)} has "
                f"{shown(list(history))}. Received: metric={shown(metric)}."
            )
        values[run] = history[metric]
    curves = _curves("histories", values, "x", x)
    figure = new_figure(7.0, 4.3)
    axes = figure.subplots()
    _draw(axes, curves, x_label)
    set_text(axes.yaxis.label, metric)
    legend_below(figure, axes.lines, list(curves))
    return figure


def plot_convergence(
    values: Mapping[str, ArrayLike],
    iterations: Mapping[str, ArrayLike],
    triplets: Mapping[str, ArrayLike],
    *,
    metric: str,
) -> Any:
    """Draw a metric against iterations and, beside it, against sampled triplets.

    A loss that samples more triplets per iteration may lead on the left and trail on
    the right. Either x axis is logarithmic where that of `plot_training` would be; both
    panels share the y axis.

    Args:
        values: By name of run: the metric, `[E]`, one value per evaluation.
        iterations: By name of run: `[E]`, the iterations until each evaluation, at
            least 0 and rising.
        triplets: By name of run: `[E]`, the triplets sampled until each evaluation, at
            least 0 and rising.
        metric: The label of the y axis, with its unit.

    Returns:
        A `matplotlib.figure.Figure`, outside pyplot. `axes[0].lines` and
        `axes[1].lines` are the runs, in the order of the values.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: An argument is not a mapping.
        ValueError: There is no run, the names of runs or the lengths differ, or a
            number is NaN or infinite.

    Example:
        >>> figure = plot_convergence(
        ...     {"triplet": [0.4, 0.6]},
        ...     {"triplet": [100, 200]},
        ...     {"triplet": [1e5, 2e5]},
        ...     metric="Recall@1",
        ... )
        >>> figure.axes[1].lines[0].get_xydata().tolist()
        [[100000.0, 0.4], [200000.0, 0.6]]

    Reference:
        Lu, Xu, Zhang, Duan and Mei, Sampling Wisely: Deep Image Embedding by Top-k
        Precision Optimization, ICCV 2019, figure 4.
    """
    panels = [
        (_curves("values", values, name, x), label)
        for name, x, label in (
            ("iterations", iterations, "iterations"),
            ("triplets", triplets, "sampled triplets"),
        )
    ]
    figure = new_figure(7.5, 3.6)
    both = figure.subplots(1, 2, sharey=True)
    for axes, (curves, label) in zip(both, panels, strict=True):
        _draw(axes, curves, label)
    set_text(both[0].yaxis.label, metric)
    legend_below(figure, both[0].lines, list(values))
    return figure


def _curves(
    y_argument: str,
    values: Mapping[str, ArrayLike],
    x_argument: str,
    x: Mapping[str, ArrayLike],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    runs_of(y_argument, values)
    if set(runs_of(x_argument, x)) != set(values):
        raise ValueError(
            f"`{x_argument}` must have the runs of `{y_argument}`: "
            f"{shown(list(values))}. Received: {shown(list(x))}."
        )
    curves = {}
    for run, row in values.items():
        y = numbers(f"{y_argument}[{run!r}]", row)
        places = numbers(f"{x_argument}[{run!r}]", x[run], low=0)
        if len(places) != len(y):
            raise ValueError(
                f"`{x_argument}[{shown(run)}]` must be as long as "
                f"`{y_argument}[{shown(run)}]`: {len(y)}. Received: {len(places)}."
            )
        if (np.diff(places) < 0).any():
            raise ValueError(
                f"`{x_argument}[{shown(run)}]` must not fall. Received: "
                f"{shown(places.tolist())}."
            )
        curves[run] = places, y
    return curves


def _draw(
    axes: Any, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], x_label: str
) -> None:
    from matplotlib.ticker import EngFormatter

    rows = [x for x, _ in curves.values()]
    everything = np.concatenate(rows)
    above_0 = everything[everything > 0]
    most = everything.max()
    crowded = min(float(np.median(x)) for x in rows) < most / 10
    if crowded and most > _LOG_SPAN * above_0.min():
        if len(above_0) == len(everything):
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=above_0.min(), linscale=0.5)
    else:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    draw_runs(axes, curves)
    set_text(axes.xaxis.label, x_label)
    plain_axes(axes)
