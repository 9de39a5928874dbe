"""The results of the studies as figures."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.groups import Column, grouped, mean, points_of, spread
from benchmarks.papers.runs import Record, read_results
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import STUDIES, Study
from tfdml.plot_style import COLORS, draw_runs, legend_below, new_figure, plain_axes
from tfdml.training_plots import plot_convergence

__all__ = ["add_options", "curves", "lines", "run"]

_FIGURE_4 = (
    "top-k precision",
    "triplet, uniform",
    "triplet, hard",
    "triplet, semi-hard",
    "triplet, distance-weighted",
    "contrastive",
    "lifted structure",
    "N-pair",
    "angular",
    "Proxy-NCA",
)
_CONVERGENCE = (
    "Proxy Anchor",
    "Proxy-NCA",
    "SoftTriple",
    "multi-similarity",
    "triplet, semi-hard",
    "N-pair",
)
_CURVES = {"figure_4": _FIGURE_4, "convergence": _CONVERGENCE}
_PANELS: dict[bool, dict[str, Column]] = {
    False: {"Precision@1, %": Column("precision_at_1", 100)},
    True: {
        "rms distance of the first hit": Column(
            "label_distance_at_1_other_sequences", 15**-0.5
        ),
        "nDCG@10, %": Column("ndcg_at_10_other_sequences", 100),
    },
}


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("results", type=Path, nargs="+", help="files that `run` has written")
    add("--folder", type=Path, required=True, help="where the figures go")


def run(options: argparse.Namespace) -> int:
    """Draw every figure that there are results for; returns the exit status."""
    records = list(read_results(options.results).values())
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, study in STUDIES.items():
        for set_, about in SETS.items():
            chosen = [r for r in records if (r["study"], r["set"]) == (name, set_)]
            if not chosen or study.is_timed:
                continue
            panels = _PANELS[about.is_continuous]
            if study.varied:
                drawn = {name: lines(study, chosen, panels)}
            else:
                drawn = {
                    figure: curves(chosen, series) for figure, series in _CURVES.items()
                }
            for figure, picture in drawn.items():
                if picture is not None:
                    picture.savefig(options.folder / f"{figure}_{set_}.png")
    return 0


def curves(records: Sequence[Record], series: Sequence[str]) -> Any:
    """Draw how Precision@1 rises, the mean over seeds.

    Args:
        records: Results with curves, of classes.
        series: Which losses; those without a result are left out.

    Returns:
        The figure, None where none of them has a curve.
    """
    groups = {name: runs for (name, _), runs in grouped(records).items()}
    runs = {
        name: found
        for name in series
        if (found := [r["curve"] for r in groups.get(name, ()) if "curve" in r])
    }
    if not runs:
        return None

    def means(name: str) -> dict[str, np.ndarray]:
        return {
            loss: np.mean([[point[name] for point in run] for run in found], axis=0)
            for loss, found in runs.items()
        }

    reached = {loss: 100 * values for loss, values in means("precision_at_1").items()}
    return plot_convergence(
        reached, means("step"), means("triplets"), metric="Precision@1, %"
    )


def lines(study: Study, records: Sequence[Record], panels: dict[str, Column]) -> Any:
    """Draw what each series reaches at each point: the mean, and the range over seeds.

    Args:
        study: What varies.
        records: Its results on a set.
        panels: The metric of each panel by its label.
    """
    points = points_of(records)
    is_number = not isinstance(points[0], str)
    at = dict(zip(points, points if is_number else range(len(points)), strict=True))
    groups = grouped(records)
    series = list(dict.fromkeys(name for name, _ in groups))
    figure = new_figure(3.8 * max(len(panels), 1.5), 3.8)
    for axes, (label, column) in zip(
        np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True
    ):
        drawn = {}
        for place, name in enumerate(series):
            values = {
                at[point]: column.of(groups.get((name, point), ())) for point in points
            }
            values = {x: reached for x, reached in values.items() if reached}
            x, y = list(values), [mean(reached) for reached in values.values()]
            drawn[name] = np.array(x), np.array(y)
            spreads = [spread(reached) for reached in values.values()]
            color = COLORS[place % len(COLORS)]
            axes.errorbar(x, y, spreads, fmt="none", ecolor=color, capsize=3, alpha=0.6)
        draw_runs(axes, drawn)
        if not is_number:
            axes.set_xticks(list(at.values()), points)
        elif min(points) > 0 and max(points) / min(points) >= 8:
            axes.set_xscale("log", base=2)
            axes.set_xticks(points, [f"{point:g}" for point in points])
            axes.minorticks_off()
        axes.set_xlabel(study.varied)
        axes.set_ylabel(label)
        plain_axes(axes)
    legend_below(figure, figure.axes[0].lines[-len(series) :], series)
    return figure
