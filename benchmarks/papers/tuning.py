"""The learning rate of each loss, chosen on validation classes from one small grid."""

import math
from collections.abc import Iterable

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Record, Run
from benchmarks.papers.sets import SETS

__all__ = ["RATES", "Rates", "rates_of", "tuning_runs"]

RATES = (3e-5, 1e-4, 3e-4)
"""The grid, the same for all."""

Rates = dict[tuple[str, str], float]
"""The rate of each set and case."""

_STUDY = "tuning"
_CHOSEN_BY = {
    True: ("label_distance_at_10_other_sequences", -1),
    False: ("precision_at_1", 1),
}
"""The metric of continuous labels (True) and of classes; -1 where less is better."""


def tuning_runs(cases: Iterable[tuple[str, str]], steps: int) -> list[Run]:
    """Return the runs that choose the rates of some sets and cases, by seed 0."""
    return [
        Run(
            _STUDY,
            case,
            CASES[case].tables(set_, {"fit": {"steps": steps, "learning_rate": rate}}),
            split="validation",
        )
        for set_, case in cases
        for rate in RATES
    ]


def rates_of(results: Iterable[Record], steps: int) -> Rates:
    """Return the best rate of each set and case whose whole grid was run.

    A run that diverged is never the best.

    Args:
        results: Records of results, of all studies.
        steps: How long the runs of the grid were.
    """
    grids: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record in results:
        fit = record["tables"]["fit"]
        if (record["study"], fit["steps"]) != (_STUDY, steps):
            continue
        metric, sign = _CHOSEN_BY[SETS[record["set"]].is_continuous]
        reached = sign * record.get("metrics", {}).get(metric, -sign * math.inf)
        place = record["set"], record["series"]
        grids.setdefault(place, []).append((reached, fit["learning_rate"]))
    return {
        place: max(grid)[1] for place, grid in grids.items() if len(grid) == len(RATES)
    }
