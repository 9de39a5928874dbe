"""Draw the results of the studies."""

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.cases import CASES
from benchmarks.papers.groups import diverged, grouped, mean, of_studies
from benchmarks.papers.lines import add_floor, lines
from benchmarks.papers.metrics import CLASSES
from benchmarks.papers.runs import NOT_TRAINED, Record, Tables, read_results
from benchmarks.papers.studies import STUDIES, Study
from benchmarks.papers.triplets import most_triplets_a_step
from benchmarks.papers.variants import TABLE_1
from tfdml.figure_style import draw_runs, legend_below, new_figure, save_small
from tfdml.plots import plot_convergence

_CONVERGENCE = (
    "Proxy Anchor",
    "Proxy-NCA",
    "SoftTriple",
    "multi-similarity",
    "triplet, semi-hard",
    "N-pair",
)
_CAPPED = (f"{TABLE_1[0]}, k 5, margin 0.1", *TABLE_1[1:])
_CURVES: dict[str, dict[str, Sequence[str]]] = {
    "losses": {"figure_4": TABLE_1, "convergence": _CONVERGENCE},
    "headline": {"figure_4_capped": _CAPPED},
    "headline_unequal": {"figure_4_unequal": _CAPPED},
}
"""The figures of each study without points, and whose curves are in them."""

_TITLE_CHARACTERS = 95
"""So many stand in a line of a figure of 7 inches."""


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("results", type=Path, nargs="+", help="files that `run` has written")
    add("--folder", type=Path, required=True, help="where the figures go")


def run(options: argparse.Namespace) -> int:
    """Draw every figure that there are results for; returns the exit status."""
    records = list(read_results(options.results).values())
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, set_, chosen, floor in of_studies(records):
        study = STUDIES[name]
        network = [record for record in floor if record["series"] == NOT_TRAINED]
        if not study.is_timed:
            for figure, image in _drawn(name, study, chosen, network, set_).items():
                save_small(image, options.folder / f"{figure}_{set_}.png")
    return 0


def _drawn(
    name: str,
    study: Study,
    records: Sequence[Record],
    floor: Sequence[Record],
    set_: str,
) -> dict[str, Any]:
    """Return the figures of a study on a set by their names, with their titles."""
    if study.varied:
        title = study.title
        drawn = {name: lines(study, records, floor, set_)}
    else:
        title = "Precision@1 on test images in the course of training"
        sampled = {v.name: CASES[v.case].sampled for v in study.of(set_)}
        drawn = {
            figure: curves(records, floor, {series: sampled[series] for series in of})
            for figure, of in _CURVES.get(name, {}).items()
        }
    if study.follows:
        drawn |= {name: followed(records, study.follows)}
    drawn = {figure: image for figure, image in drawn.items() if image}
    for image in drawn.values():
        image.suptitle(textwrap.fill(f"{set_}: {title}", _TITLE_CHARACTERS), size=10)
    return drawn


def curves(
    records: Sequence[Record], floor: Sequence[Record], sampled: Mapping[str, str]
) -> Any:
    """Draw how Precision@1 rises, the mean over seeds.

    Args:
        records: Results with curves, of classes.
        floor: What the network reaches that was not trained, if known.
        sampled: Which series, and how the loss of each samples triplets; those without
            a result are left out.

    Returns:
        The figure, None where none of them has a curve.
    """
    reached, steps, triplets = {}, {}, {}
    groups = {name: runs for (name, _), runs in grouped(records).items()}
    for name, way in sampled.items():
        runs = groups.get(name, [])
        found = [run["curve"] for run in runs if "curve" in run]
        if found:
            label = name + diverged(runs)
            values = [[point["precision_at_1"] for point in run] for run in found]
            reached[label] = 100 * np.mean(values, axis=0)
            steps[label] = np.array([point["step"] for point in found[0]])
            triplets[label] = _triplets(found, way, runs[0]["tables"])
    if not reached:
        return None
    figure = plot_convergence(reached, steps, triplets, metric="Precision@1, %")
    if at := CLASSES.column("Precision@1").of(floor):
        for axes in figure.axes:
            add_floor(axes, mean(at), is_named=axes is figure.axes[-1])
    return figure


def _triplets(
    found: Sequence[Sequence[dict[str, Any]]], way: str, tables: Tables
) -> np.ndarray:
    """Return the triplets until each point of some curves, the mean over these."""
    if "triplets" in found[0][0]:
        return np.mean([[at["triplets"][way] for at in run] for run in found], axis=0)
    most = most_triplets_a_step(way, tables)
    return most * np.array([point["step"] for point in found[0]])


def followed(records: Sequence[Record], metric: str) -> Any:
    """Draw how a metric changes, and Precision@1 beside it, the mean over seeds.

    Args:
        records: Results with curves that have it.
        metric: Its name in the curves.

    Returns:
        The figure, None where there are no such curves.
    """
    found = {
        name: [run["curve"] for run in runs if "curve" in run]
        for (name, _), runs in grouped(records).items()
    }
    found = {name: all_ for name, all_ in found.items() if all_}
    if not found:
        return None
    figure = new_figure(7.0, 3.0)
    both = figure.subplots(1, 2)
    for axes, key, scale in ((both[0], metric, 1), (both[1], "precision_at_1", 100)):
        draw_runs(
            axes,
            {
                name: (
                    np.array([point["step"] for point in all_[0]]),
                    scale * np.mean([[p[key] for p in run] for run in all_], axis=0),
                )
                for name, all_ in found.items()
            },
        )
        axes.set_xlabel("iterations")
    both[0].set_ylabel(metric.replace("_", " "))
    both[1].set_ylabel("Precision@1, %")
    legend_below(figure, both[0].lines, list(found))
    return figure
