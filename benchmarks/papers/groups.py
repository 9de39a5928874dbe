"""Results by what was compared and at which point, over seeds."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.papers.runs import Record

__all__ = ["FLOOR", "Column", "grouped", "mean", "points_of", "spread"]

FLOOR = "floor"
"""The study of what was not trained."""


@dataclass(frozen=True)
class Column:
    """A metric and by what it is multiplied to be told."""

    metric: str
    scale: float

    def of(self, runs: Iterable[Record]) -> list[float]:
        """Return its value of each run that did not diverge."""
        return [self.scale * r["metrics"][self.metric] for r in runs if "metrics" in r]


def grouped(records: Iterable[Record]) -> dict[tuple[str, Any], list[Record]]:
    """Return the runs of each series and point, which differ by the seed."""
    groups: dict[tuple[str, Any], list[Record]] = {}
    for record in records:
        groups.setdefault((record["series"], record["point"]), []).append(record)
    return groups


def points_of(records: Iterable[Record]) -> list[Any]:
    """Return the points: numbers in ascending order, words as they come."""
    points = list(dict.fromkeys(record["point"] for record in records))
    return points if any(isinstance(p, str) for p in points) else sorted(points)


def mean(values: Sequence[float]) -> float:
    """Return the mean over seeds."""
    return statistics.fmean(values)


def spread(values: Sequence[float]) -> float:
    """Return half the range over seeds."""
    return (max(values) - min(values)) / 2
