"""Write the results of the studies as Markdown tables."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.cases import CASES
from benchmarks.papers.comparisons import Comparison, digits_of
from benchmarks.papers.groups import (
    diverged,
    grouped,
    mean,
    of_studies,
    points_of,
    series_of,
    spread,
    text_of,
    validated,
)
from benchmarks.papers.metrics import Column
from benchmarks.papers.runs import Record, read_results
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import STUDIES, Study
from benchmarks.papers.tuning import RATES


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("results", type=Path, nargs="+", help="files that `run` has written")
    add(
        "--split",
        choices=["test", "validation"],
        default="test",
        help="which images to report; recommendations are chosen on validation (test)",
    )
    add("--against", choices=list(CASES), help="compare with this loss (the best)")


def run(options: argparse.Namespace) -> int:
    """Print the tables; returns the exit status."""
    records = list(read_results(options.results).values())
    if options.split == "validation":
        records = validated(records)
    for name, set_, chosen, floor in of_studies(records):
        study, split = STUDIES[name], options.split
        text = section(study, chosen, floor, set_, split, options.against)
        print(text, end="\n\n")
    return 0


def section(
    study: Study,
    records: Sequence[Record],
    floor: Sequence[Record],
    set_: str,
    split: str = "test",
    against: str | None = None,
) -> str:
    """Write the results of a study on a set: a heading, tables, what they come from.

    A study that varies something gets a table a metric, with a line a series and a
    column a point; another gets a line a series with all metrics, the best first. Cells
    are the mean over seeds and after ± half the range.

    Args:
        study: Which.
        records: Its results on the set.
        floor: What is reached without training, if known.
        set_: The set.
        split: Which images the results are of; those of `"validation"` are not
            compared query by query.
        against: With which series a study that varies nothing compares the others;
            with the best if None or where there is no such series.

    Raises:
        ValueError: The results are of more than one protocol.
    """
    grouped([*records, *floor])  # refuses what is of several protocols
    if study.is_timed:
        heading, parts = set_, [_timed(records)]
    else:
        heading = f"{set_}, {split} images"
        classes = next((r["classes"] for r in floor if "classes" in r), None)
        comparison = Comparison(set_, classes) if split == "test" else None
        if study.varied:
            parts = _by_points(study, records, floor, set_, comparison)
        else:
            parts = _by_metric(records, floor, set_, comparison, against)
    parts = [f"## {study.title}: {heading}", study.note, *parts]
    return "\n\n".join([part for part in parts if part] + [_origin(records, floor)])


def _origin(records: Sequence[Record], floor: Sequence[Record]) -> str:
    """Describe the origin of a table."""
    fits = [{**r, **r["tables"]["fit"]} for r in records]
    every = [*records, *floor]
    about = [
        ("commit", every),
        ("device", every),
        ("backend", every),
        ("date", every),
        ("seed", fits),
        ("steps", fits),
    ]
    parts = []
    for name, of in about:
        values = sorted({r[name] for r in of if name in r})
        if values:
            parts.append(f"{name} {', '.join(map(str, values))}")
    return f"Mean over seeds ± half their range. From {'; '.join(parts)}."


def _timed(records: Sequence[Record]) -> str:
    lines = ["| loss | ms a step |", "| --- | ---: |"]
    groups = grouped(records)
    for series in series_of(records):
        runs = groups[series, None]
        times = [run["step_ms"] for run in runs if "step_ms" in run]
        lines.append(f"| {series} | {_text(times, 2)}{diverged(runs)} |")
    return "\n".join(lines)


def _by_points(
    study: Study,
    records: Sequence[Record],
    floor: Sequence[Record],
    set_: str,
    comparison: Comparison | None,
) -> list[str]:
    """Write for each reported metric its name and its table."""
    metrics = SETS[set_].metrics
    parts = []
    for column in metrics.reported(study.reported, records):
        lines = _table_by_point(study, records, column)
        differences = ""
        if comparison is not None and column.metric == metrics.query:
            compared = _against_baselines(study, records, comparison)
            lines += compared
            differences = comparison.explained("Differences") if compared else ""
        parts += [f"**{column.name}**", "\n".join(lines)]
        if floor:
            values = [f"{r['series']}: {_cell([r], column)}" for r in floor]
            parts.append("; ".join(values).capitalize() + ".")
        parts.append(differences)
    return parts


def _table_by_point(
    study: Study, records: Sequence[Record], column: Column
) -> list[str]:
    groups, points = grouped(records), points_of(records)
    lines = [
        f"| {study.varied} | {' | '.join(map(text_of, points))} |",
        "| --- |" + " ---: |" * len(points),
    ]
    for series in series_of(records):
        runs = [groups.get((series, point), []) for point in points]
        cells = [(_cell(some, column) + diverged(some)).strip() for some in runs]
        lines.append(f"| {series} | {' | '.join(cells)} |")
    return lines


def _against_baselines(
    study: Study, records: Sequence[Record], comparison: Comparison
) -> list[str]:
    groups, points = grouped(records), points_of(records)
    known = {series for series, _ in groups}
    lines = []
    for series, baseline in study.baselines:
        if {series, baseline} <= known:
            cells = [
                comparison.cell(
                    groups.get((baseline, point), []), groups.get((series, point), [])
                )
                for point in points
            ]
            lines.append(f"| {series} - {baseline} | {' | '.join(cells)} |")
    return lines


def _by_metric(
    records: Sequence[Record],
    floor: Sequence[Record],
    set_: str,
    comparison: Comparison | None,
    against: str | None,
) -> list[str]:
    """Write a table with a column a metric and, if need be, what its last column is."""
    metrics = SETS[set_].metrics
    groups = {name: runs for (name, _), runs in grouped([*records, *floor]).items()}
    first = metrics.columns[0]

    def place(series: str) -> float:
        reached = first.of(groups[series])
        if not reached:
            return np.inf
        return mean(reached) if metrics.less_is_better else -mean(reached)

    order = sorted(groups, key=place)
    other, rival = order[0], "the best"
    if against in groups:
        other = rival = against
    names = ["loss", "rate", "seeds", *(column.name for column in metrics.columns)]
    ends = ["---", *["---:"] * (len(names) - 1)]
    if comparison is not None:
        names.append(f"against {rival}")
        ends.append("---")
    lines = [f"| {' | '.join(names)} |", f"| {' | '.join(ends)} |"]
    for series in order:
        runs = groups[series]
        cells = [series, *_about(runs), *(_cell(runs, c) for c in metrics.columns)]
        if comparison is not None:
            is_other = series == other
            cells.append("" if is_other else comparison.cell(groups[other], runs))
        lines.append(f"| {' | '.join(cells)} |")
    parts = ["\n".join(lines)]
    if comparison is not None:
        chosen = ", which is chosen after the fact by these very numbers"
        what = f"Against {rival}: a loss less {rival}" + chosen * (rival == "the best")
        parts.append(comparison.explained(what))
    return parts


def _about(runs: Sequence[Record]) -> tuple[str, str]:
    """Return the learning rate and the number of seeds; of no training, nothing."""
    if not runs[0]["is_trained"]:
        return "", ""
    rate = runs[0]["tables"]["fit"]["learning_rate"]
    end = " (end)" if rate in (min(RATES), max(RATES)) else ""
    return f"{rate:g}{end}", f"{len(runs)}{diverged(runs)}"


def _cell(runs: Sequence[Record], column: Column) -> str:
    return _text(column.of(runs), digits_of(column))


def _text(values: Sequence[float], digits: int) -> str:
    """Write the mean over seeds and, of several, half the range; of none, nothing."""
    if not values:
        return ""
    text = f"{mean(values):.{digits}f}"
    return f"{text} ± {spread(values):.{digits}f}" if len(values) > 1 else text
