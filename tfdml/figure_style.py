"""Give all plots the same colors, lines, markers, grid and legend."""

import io
import textwrap
import unicodedata
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from tfdml._core.fonts import drawable, set_text

# Okabe and Ito's colors, distinct for every kind of color vision, with gray in the
# place of yellow, which is too light on white. The first two differ in lightness too.
COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#7F7F7F",
)
"""Colors of series, which people with color blindness can tell apart."""

# Lengths of dashes and gaps in line widths.
_DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 1.8)),
    (0, (6, 1.8, 1.2, 1.8)),
    (0, (1.4, 1.4)),
    (0, (10, 2)),
    (0, (2.8, 1.2)),
    (0, (6, 1.6, 1.2, 1.6, 1.2, 1.6)),
    (0, (10, 1.8, 3, 1.8)),
)
_MARKERS = "os^DvPX*"

_PER_CHARACTER = 0.082  # inches, of text of 10 points, on average
_PER_HANDLE = 0.75
_PER_LINE = 0.21
_MARKED = 25  # a curve of at most so many points has a marker on each
_NOISY = 100  # thick lines of more points hide where they go


def new_figure(width: float, height: float, *, layout: Any = "constrained") -> Any:
    """Return an empty `matplotlib.figure.Figure`, outside pyplot, sized in inches.

    At its 120 dots per inch, 7 inches are the 840 pixels of a page's column. Notebooks
    show it.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from tfdml._core.figures import ShownFigure
    except ImportError as error:
        raise ImportError(
            'Plots need matplotlib: pip install "tfdml[evaluation]".'
        ) from error
    return ShownFigure(figsize=(width, height), dpi=120, layout=layout)


def save_small(
    figure: Any, path: str | PathLike, *, dpi: float | str = "figure"
) -> None:
    """Write a figure as a PNG of 64 colors, a third of the usual size.

    Args:
        figure: A `matplotlib.figure.Figure`.
        path: The file.
        dpi: Dots per inch; by default those of the figure.
    """
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, metadata={"Software": None})
    image = Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    image.save(path, "png", optimize=True)


def light_grid(axes: Any) -> None:
    """Lay a light grid behind the data."""
    axes.grid(color="#E0E0E0", linewidth=0.6)
    axes.set_axisbelow(True)


def plain_axes(axes: Any) -> None:
    """Lay a light grid behind the data, and leave out the top and right spines."""
    light_grid(axes)
    axes.spines[["top", "right"]].set_visible(False)


def draw_runs(
    axes: Any, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], **options: Any
) -> None:
    """Draw one line per run, each with its own color, dashes and markers.

    Runs keep their look as long as they come in the same order. Markers are staggered,
    so that runs that coincide can all be seen.

    Args:
        axes: The axes.
        curves: x and y of each run.
        options: Further arguments of `axes.plot`.
    """
    count = len(COLORS)
    for place, (name, (x, y)) in enumerate(curves.items()):
        lap = place // count
        color = COLORS[place % count]
        axes.plot(
            x,
            y,
            label=name,
            color=color,
            linestyle=_DASHES[(place + lap) % count],
            linewidth=1.8 if len(x) <= _NOISY else 1.4,
            marker=_MARKERS[(place + 3 * lap) % count],
            markersize=6.5,
            markerfacecolor=color if place % 2 == 0 else "white",
            markeredgecolor=color,
            # Distances along the line, in diagonals of the axes.
            markevery=None if len(x) <= _MARKED else (0.02 * (place % 7), 0.14),
            **options,
        )


def legend_below(figure: Any, handles: Any, names: list[str]) -> None:
    """Write the legend below the axes, and make the figure higher by as much.

    Long names are broken into lines, in as many columns as fit.
    """
    width, height = figure.get_size_inches()
    room = int((width - _PER_HANDLE) / _PER_CHARACTER)
    broken = [_broken(drawable(name)[0], room) for name in names]
    columns = len(names)
    while columns > 1 and sum(_widths(broken, columns)) > width:
        columns -= 1
    lines = max(
        sum(name.count("\n") + 1 for name in part) for part in _columns(broken, columns)
    )
    figure.set_size_inches(width, height + _PER_LINE * lines)
    legend = figure.legend(
        handles,
        ["run"] * len(names),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=3.4,
        columnspacing=1.6,
    )
    # Given as a label, a name with a first underscore would be left out.
    for text, name in zip(legend.get_texts(), broken, strict=True):
        set_text(text, name)


def _broken(name: str, room: int) -> str:
    """Break a name into lines of so many narrow characters."""
    wide = _cells(name) / max(len(name), 1)
    return textwrap.fill(name, max(1, int(room / max(wide, 1)))) or " "


def _cells(line: str) -> int:
    """Return the width of a line, of which a Chinese character takes two places."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in line)


def _columns(names: list[str], columns: int) -> list[list[str]]:
    """Return the names in each column of a legend, which fills one after the other."""
    parts = np.array_split(np.arange(len(names)), columns)
    return [[names[place] for place in part] for part in parts]


def _widths(names: list[str], columns: int) -> list[float]:
    return [
        _PER_HANDLE
        + _PER_CHARACTER * max(_cells(x) for name in part for x in name.splitlines())
        for part in _columns(names, columns)
    ]
