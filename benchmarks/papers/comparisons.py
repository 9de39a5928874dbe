"""Compare results query by query, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.papers.metrics import Column
from benchmarks.papers.runs import Record
from benchmarks.papers.sets import SETS
from tfdml.metrics import paired_difference


def digits_of(column: Column) -> int:
    """Return how many decimals of a column are shown."""
    return 1 if column.scale > 1 else 3


@dataclass(frozen=True)
class Comparison:
    """Compares runs on the test images of a set.

    Args:
        set: Which.
        classes: The class of each query, or its clip; None where it is not known.
    """

    set: str
    classes: Sequence[Any] | None

    @property
    def column(self) -> Column:
        """What is compared: what is kept of each query."""
        metrics = SETS[self.set].metrics
        return next(c for c in metrics.columns if c.metric == metrics.query)

    def cell(self, runs: Sequence[Record], others: Sequence[Record]) -> str:
        """Write the mean of `others` less that of `runs`, and its interval.

        "n.s." where the paired bootstrap over classes and seeds finds no difference;
        empty where either side has no run that did not diverge.

        Raises:
            ValueError: The queries are others than those of the floor.
        """
        before, after = (
            [self._queries(run) for run in side if "queries" in run]
            for side in (runs, others)
        )
        if not before or not after:
            return ""
        if self.classes is None:
            return "no floor"
        found = paired_difference(before, after, self.classes)
        scale, digits = self.column.scale, digits_of(self.column)
        values = (found.difference, found.low, found.high)
        difference, low, high = (f"{scale * value:+.{digits}f}" for value in values)
        mark = "" if found.is_significant else ", n.s."
        return f"{difference} ({low} to {high}){mark}"

    def _queries(self, run: Record) -> list[float]:
        queries = run["queries"]
        if self.classes is not None and len(queries) != len(self.classes):
            raise ValueError(
                "`results` must be files of one protocol: as many queries as the floor "
                f"has, {len(self.classes)} on {self.set}. Received, of {run['study']}, "
                f"{run['series']}: {len(queries)}."
            )
        return [float(value) for value in queries]

    def explained(self, what: str) -> str:
        """Describe the numbers of `cell`.

        Args:
            what: Which difference they are.
        """
        if self.classes is None:
            return (
                "No floor: without the run that is not trained the classes of the "
                "queries are not known, and nothing is compared."
            )
        groups = "classes"
        if SETS[self.set].is_continuous:
            groups = f"the {len(set(self.classes))} clips, which are few,"
        return (
            f"{what}, of {self.column.name}; in brackets the 95% interval over "
            f"{groups} and seeds, n.s. where it has 0; not corrected for many "
            "comparisons."
        )
