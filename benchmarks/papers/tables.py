"""The results of the studies as Markdown tables."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.groups import FLOOR, Column, grouped, mean, points_of, spread
from benchmarks.papers.runs import Record, read_results
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import STUDIES, Study
from tfdml.bootstrap import paired_difference

__all__ = ["add_options", "run", "table"]

_RMS = 15**-0.5
"""Label distances are those of 15 joints; they are told as root mean squares."""

_COLUMNS: dict[bool, dict[str, Column]] = {
    False: {
        "Precision@1": Column("precision_at_1", 100),
        "@3": Column("precision_at_3", 100),
        "@5": Column("precision_at_5", 100),
        "@10": Column("precision_at_10", 100),
        "Recall@3": Column("recall_at_3", 100),
        "@5 ": Column("recall_at_5", 100),
        "@10 ": Column("recall_at_10", 100),
        "MAP@R": Column("map_at_r", 100),
        "mAP": Column("map", 100),
        "NMI": Column("nmi_arithmetic", 100),
        "F1": Column("pairwise_f1", 100),
    },
    True: {
        "distance of the first": Column("label_distance_at_1_other_sequences", _RMS),
        "of 10": Column("label_distance_at_10_other_sequences", _RMS),
        "nDCG@10": Column("ndcg_at_10_other_sequences", 100),
        "of the first, all": Column("label_distance_at_1", _RMS),
    },
}
"""What is told of classes (False) and of continuous labels (True)."""


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("results", type=Path, nargs="+", help="files that `run` has written")


def run(options: argparse.Namespace) -> int:
    """Print the tables; returns the exit status."""
    records = list(read_results(options.results).values())
    for name, study in STUDIES.items():
        for set_ in SETS:
            chosen = [r for r in records if (r["study"], r["set"]) == (name, set_)]
            if not chosen:
                continue
            floor = [r for r in records if (r["study"], r["set"]) == (FLOOR, set_)]
            print(f"## {study.title}: {set_}\n\n{table(study, chosen, floor, set_)}\n")
    return 0


def table(
    study: Study, records: Sequence[Record], floor: Sequence[Record], set_: str
) -> str:
    """Write the results of a study on a set as a table.

    A study that varies something gets a line a series and a column a point, of the
    first metric; another gets a line a series with all metrics, the best first. Cells
    are the mean over seeds and after ± half the range.

    Args:
        study: Which.
        records: Its results on the set.
        floor: What the network reaches that was not trained, if known.
        set_: The set.
    """
    if study.is_timed:
        return _timed(records)
    columns = _COLUMNS[SETS[set_].is_continuous]
    if study.varied:
        return _by_point(study, records, next(iter(columns.values())))
    return _by_metric([*records, *floor], columns, SETS[set_].is_continuous)


def _timed(records: Sequence[Record]) -> str:
    lines = ["| loss | ms a step |", "| --- | ---: |"]
    for (series, _), runs in grouped(records).items():
        times = [run["step_ms"] for run in runs]
        lines.append(f"| {series} | {mean(times):.2f} ± {spread(times):.2f} |")
    return "\n".join(lines)


def _by_point(study: Study, records: Sequence[Record], column: Column) -> str:
    groups = grouped(records)
    points = points_of(records)
    head = f"| {study.varied} | " + " | ".join(map(_text, points)) + " |"
    lines = [head, "| --- |" + " ---: |" * len(points)]
    for series in dict.fromkeys(series for series, _ in groups):
        cells = [_cell(groups.get((series, point), []), column) for point in points]
        lines.append(f"| {series} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_metric(
    records: Sequence[Record], columns: dict[str, Column], less_is_better: bool
) -> str:
    groups = {series: runs for (series, _), runs in grouped(records).items()}
    first = next(iter(columns.values()))

    def place(series: str) -> float:
        reached = first.of(groups[series])
        if not reached:
            return np.inf
        return mean(reached) if less_is_better else -mean(reached)

    order = sorted(groups, key=place)
    classes = next((r["classes"] for r in records if "classes" in r), None)
    lines = [
        "| loss | rate | seeds | " + " | ".join(columns) + " | against the best |",
        "| --- | ---: | ---: | " + " ---: |" * len(columns) + " --- |",
    ]
    for series in order:
        runs = groups[series]
        cells = [_cell(runs, column) for column in columns.values()]
        rate = runs[0]["tables"]["fit"].get("learning_rate", "")
        against = _against(groups[order[0]], runs, classes)
        lines.append(
            f"| {series} | {rate} | {len(runs)} | {' | '.join(cells)} | {against} |"
        )
    return "\n".join(lines)


def _text(point: Any) -> str:
    return f"{point:g}" if isinstance(point, int | float) else str(point)


def _cell(runs: Sequence[Record], column: Column) -> str:
    values = column.of(runs)
    diverged = len(runs) - len(values)
    note = f" ({diverged} diverged)" if diverged else ""
    if not values:
        return note.strip()
    digits = 1 if column.scale > 1 else 3
    text = f"{mean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ± {spread(values):.{digits}f}"
    return text + note


def _against(
    best: Sequence[Record], runs: Sequence[Record], classes: list[Any] | None
) -> str:
    """Say how far runs are from the best, in what is kept of each query.

    "n.s." where the paired bootstrap over classes and seeds finds no difference.
    """
    sides = [[_queries(r) for r in side if "queries" in r] for side in (best, runs)]
    if classes is None or runs is best or not all(sides):
        return ""
    found = paired_difference(*sides, classes)
    mark = "" if found.is_significant else ", n.s."
    return f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f}){mark}"


def _queries(record: Record) -> list[float]:
    return [float(value) for value in record["queries"]]
