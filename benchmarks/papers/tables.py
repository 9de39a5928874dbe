"""The results of the studies as Markdown tables."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.runs import read_results
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import STUDIES
from tfdml.bootstrap import paired_difference

__all__ = ["add_options", "run", "table"]

Records = list[dict[str, Any]]

_COLUMNS = {
    False: {
        "Precision@1": ("precision_at_1", 100),
        "@3": ("precision_at_3", 100),
        "@5": ("precision_at_5", 100),
        "@10": ("precision_at_10", 100),
        "Recall@3": ("recall_at_3", 100),
        "@5 ": ("recall_at_5", 100),
        "@10 ": ("recall_at_10", 100),
        "MAP@R": ("map_at_r", 100),
        "mAP": ("map", 100),
        "NMI": ("nmi_arithmetic", 100),
        "F1": ("pairwise_f1", 100),
    },
    True: {
        "label distance, first": ("label_distance_at_1_other_sequences", 1),
        "first 10": ("label_distance_at_10_other_sequences", 1),
        "nDCG@10": ("ndcg_at_10_other_sequences", 100),
        "first 10, all": ("label_distance_at_10", 1),
    },
}
"""What is told, and its scale, of continuous labels (True) and of classes."""


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("results", type=Path, nargs="+", help="files that `run` has written")


def run(options: argparse.Namespace) -> int:
    """Print the tables; returns the exit status."""
    records = list(read_results(options.results).values())
    for name, study in STUDIES.items():
        for set_ in SETS:
            chosen = [
                r
                for r in records
                if r["set"] == set_ and r["study"] in (name, "floor") and "metrics" in r
            ]
            if any(record["study"] == name for record in chosen):
                print(f"## {study.title}: {set_}\n\n{table(chosen, set_)}\n")
    return 0


def table(records: Records, set_: str) -> str:
    """Write a table, a line a loss, the best first.

    The mean over the seeds, and after +- half the range. "n.s." marks what does not
    differ from the best by the paired bootstrap over classes and seeds.

    Args:
        records: Results of one study on one set, and of its floor.
        set_: The set.
    """
    is_continuous = SETS[set_].is_continuous
    columns = _COLUMNS[is_continuous]
    groups: dict[str, Records] = {}
    for record in records:
        groups.setdefault(record["name"], []).append(record)
    first = next(iter(columns.values()))[0]
    order = sorted(
        groups,
        key=lambda name: np.mean([r["metrics"][first] for r in groups[name]]),
        reverse=not is_continuous,
    )
    classes = next((r["classes"] for r in records if "classes" in r), None)
    lines = [
        "| loss | rate | seeds | " + " | ".join(columns) + " | against the best |",
        "| --- | ---: | ---: | " + " ---: |" * len(columns) + " --- |",
    ]
    for name in order:
        runs = groups[name]
        cells = [_cell(runs, *column) for column in columns.values()]
        rate = runs[0]["tables"]["fit"].get("learning_rate", "")
        against = _against(groups[order[0]], runs, classes)
        lines.append(
            f"| {name} | {rate} | {len(runs)} | {' | '.join(cells)} | {against} |"
        )
    return "\n".join(lines)


def _cell(runs: Iterable[Mapping[str, Any]], metric: str, scale: float) -> str:
    values = [scale * run["metrics"][metric] for run in runs]
    digits = 1 if scale > 1 else 3
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} +- {(max(values) - min(values)) / 2:.{digits}f}"


def _against(best: Records, runs: Records, classes: list[Any] | None) -> str:
    """Say how far runs are from the best, in the first column."""
    if classes is None or runs is best:
        return ""
    before, after = ([run["queries"] for run in side] for side in (best, runs))
    found = paired_difference(before, after, classes)
    mark = "" if found.is_significant else ", n.s."
    return f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f}){mark}"
