"""Draw what each series of a study reaches at each point."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.papers.groups import (
    diverged,
    grouped,
    mean,
    points_of,
    series_of,
    text_of,
)
from benchmarks.papers.metrics import Column
from benchmarks.papers.runs import Record
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import Study
from tfdml.figure_style import COLORS, draw_runs, legend_below, new_figure, plain_axes

_WIDTH = 7.0
"""Inches: 840 pixels, as wide as a page."""
_HEIGHT = 3.8
_HEIGHT_OF_PART = 2.4
_INCH_A_CHARACTER = 0.085
_MARGINS = 0.9
"""Inches that are left and right of the points."""
_SHARE_OF_WORD = 0.7
_SHARE_OF_NUMBER = 0.3
"""How much of the room of a point its series take at most."""
_STEP = 0.06
"""How much of the room of a number is at most between two series joined by lines."""
_LOGARITHMIC = 8
"""From so large a ratio of the points on, their axis is logarithmic."""
_GRAY = "#808080"
_ROOM = 0.05


def lines(
    study: Study, records: Sequence[Record], floor: Sequence[Record], set_: str
) -> Any:
    """Draw the mean over seeds of each series at each point, with the range over seeds.

    There is a panel for each metric that the study tells, one below the other. Series
    stand beside each other at a point, so that their ranges can be told apart. Points
    that are numbers are joined by lines.

    Args:
        study: What varies.
        records: Its results on the set.
        floor: What the network reaches that was not trained, if known.
        set_: The set.

    Returns:
        The figure.
    """
    columns = SETS[set_].metrics.reported(study.reported, records)
    groups, points = grouped(records), points_of(records)
    series = series_of(records)
    figure = new_figure(_WIDTH, max(_HEIGHT, _HEIGHT_OF_PART * len(columns)))
    panels = np.atleast_1d(figure.subplots(len(columns), 1, sharex=True))
    for axes, column in zip(panels, columns, strict=True):
        places = _Places(points, len(series))
        _draw(axes, groups, series, places, column)
        places.mark(axes)
        axes.set_ylabel(column.name + (", %" if column.scale > 1 else ""))
        plain_axes(axes)
        if at := column.of(floor):
            add_floor(axes, mean(at))
    panels[-1].set_xlabel(study.varied)
    names = [
        name + diverged(record for record in records if record["series"] == name)
        for name in series
    ]
    legend_below(figure, panels[0].lines[: len(series)], names)
    return figure


class _Places:
    """Where the series stand at each point.

    Args:
        points: The points in their order.
        count: How many series there are.
    """

    def __init__(self, points: Sequence[Any], count: int) -> None:
        self.points = points
        self.count = count
        self.is_words = any(isinstance(point, str) for point in points)
        numbers = range(len(points)) if self.is_words else points
        low, high = min(numbers), max(numbers)
        self.is_logarithmic = (
            low > 0 and not self.is_words and high >= _LOGARITHMIC * low
        )
        values = np.asarray(numbers, "float64")
        self.values = np.log2(values) if self.is_logarithmic else values
        gap = np.diff(self.values).min() if len(values) > 1 else 1.0
        if self.is_words:
            self.step = gap * _SHARE_OF_WORD / count
        else:
            self.step = gap * min(_STEP, _SHARE_OF_NUMBER / count)

    def of(self, series: int) -> np.ndarray:
        """Return the place of each point for the series of a number."""
        values = self.values + self.step * (series - (self.count - 1) / 2)
        return 2.0**values if self.is_logarithmic else values

    def mark(self, axes: Any) -> None:
        """Write the points below axes.

        Numbers without room are left out; words are turned where one has no room.
        """
        if self.is_logarithmic:
            axes.set_xscale("log", base=2)
        labels = [text_of(point) for point in self.points]
        span = max(np.ptp(self.values), 1e-9)
        inches = (_WIDTH - _MARGINS) * (self.values - self.values[0]) / span
        shown = _without_overlap(inches, labels)
        ticks = 2.0**self.values if self.is_logarithmic else self.values
        if self.is_words and not all(shown):
            turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
            axes.set_xticks(ticks, labels, **turned)
        else:
            pairs = zip(labels, shown, strict=True)
            axes.set_xticks(ticks, [label if show else "" for label, show in pairs])
        axes.minorticks_off()


def _without_overlap(inches: Sequence[float], labels: Sequence[str]) -> list[bool]:
    """Choose the labels that have room, from left to right."""
    shown, end = [], -np.inf
    for middle, label in zip(inches, labels, strict=True):
        half = _INCH_A_CHARACTER * (len(label) + 1) / 2
        shown.append(bool(middle - half >= end))
        if shown[-1]:
            end = middle + half
    return shown


def _draw(
    axes: Any,
    groups: dict[tuple[str, Any], list[Record]],
    series: Sequence[str],
    places: _Places,
    column: Column,
) -> None:
    """Draw the lines of all series, then their ranges, behind."""
    drawn, errors = {}, []
    for number, name in enumerate(series):
        at = [
            (x, column.of(groups.get((name, point), ())))
            for x, point in zip(places.of(number), places.points, strict=True)
        ]
        reached = [values for _, values in at if values]
        means = np.array([mean(values) for values in reached])
        lows = [min(values) for values in reached]
        highs = [max(values) for values in reached]
        drawn[name] = np.array([x for x, values in at if values]), means
        # A mean of equal values may be rounded past them.
        errors.append(np.maximum([means - lows, highs - means], 0))
    draw_runs(axes, drawn)
    for number, ((x, means), apart) in enumerate(
        zip(drawn.values(), errors, strict=True)
    ):
        color = COLORS[number % len(COLORS)]
        if places.is_words:
            axes.lines[number].set_linestyle("none")
        axes.errorbar(
            x, means, apart, fmt="none", ecolor=color, capsize=2.5, lw=1.1, zorder=1.9
        )


def add_floor(axes: Any, value: float, *, is_named: bool = True) -> None:
    """Draw what the network reaches that was not trained, behind all else.

    Where that is so far away that the series would lie on each other, an arrow points
    there instead.

    Args:
        axes: The axes, with all else in them.
        value: Where it is.
        is_named: Whether its name is written to the right of the axes.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)  # from here on only this moves it
    span = high - low
    if low - span <= value <= high + span:
        axes.set_ylim(min(low, value - _ROOM * span), max(high, value + _ROOM * span))
        axes.axhline(value, color=_GRAY, lw=0.8, zorder=0.5)
        name, place, align = "not\ntrained", value, "center"
    else:
        is_below = value < low
        arrow = "\u2193" if is_below else "\u2191"
        place, align = (low, "bottom") if is_below else (high, "top")
        name = f"not\ntrained\n{value:.3g} {arrow}"
    if is_named:
        axes.text(
            1.01,
            place,
            name,
            transform=axes.get_yaxis_transform(),
            color=_GRAY,
            size=8,
            va=align,
        )
