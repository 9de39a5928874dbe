"""Draw the results of the studies."""

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.cases import CASES
from benchmarks.papers.groups import diverged, grouped, mean, of_studies
from benchmarks.papers.lines import add_floor, lines
from benchmarks.papers.metrics import CLASSES
from benchmarks.papers.runs import NOT_TRAINED, Record, Tables, read_results
from benchmarks.papers.studies import STUDIES, Study
from tfdml.figure_style import save_small
from tfdml.plots import plot_convergence

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
        drawn = {figure: curves(records, floor, of) for figure, of in _CURVES.items()}
    drawn = {figure: image for figure, image in drawn.items() if image}
    for image in drawn.values():
        image.suptitle(textwrap.fill(f"{set_}: {title}", _TITLE_CHARACTERS), size=10)
    return drawn


def curves(
    records: Sequence[Record], floor: Sequence[Record], series: Sequence[str]
) -> Any:
    """Draw how Precision@1 rises, the mean over seeds.

    Args:
        records: Results with curves, of classes.
        floor: What the network reaches that was not trained, if known.
        series: Which losses; those without a result are left out.

    Returns:
        The figure, None where none of them has a curve.
    """
    reached, steps, triplets = {}, {}, {}
    groups = {name: runs for (name, _), runs in grouped(records).items()}
    for name in series:
        runs = groups.get(name, [])
        found = [run["curve"] for run in runs if "curve" in run]
        if found:
            label = name + diverged(runs)
            values = [[point["precision_at_1"] for point in run] for run in found]
            reached[label] = 100 * np.mean(values, axis=0)
            steps[label] = np.array([point["step"] for point in found[0]])
            each = triplets_a_step(CASES[name].sampled, runs[0]["tables"])
            triplets[label] = each * steps[label]
    if not reached:
        return None
    figure = plot_convergence(reached, steps, triplets, metric="Precision@1, %")
    if at := CLASSES.column("Precision@1").of(floor):
        for axes in figure.axes:
            add_floor(axes, mean(at), is_named=axes is figure.axes[-1])
    return figure


def triplets_a_step(sampled: str, tables: Tables) -> int:
    """Return how many triplets a loss samples of a batch.

    Args:
        sampled: `"all"`, one a positive `"pair"`, or one an `"anchor"`.
        tables: The tables of a recipe, whose batches have the same number of images of
            each class.
    """
    batches = tables["batches"]
    classes, images = batches["classes_per_batch"], batches["images_per_class"]
    anchors = classes * images
    pairs = anchors * (images - 1)
    return {"all": pairs * (anchors - images), "pair": pairs, "anchor": anchors}[
        sampled
    ]
