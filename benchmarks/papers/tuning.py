"""The learning rate of each loss, chosen on validation classes from one small grid."""

import math
from collections.abc import Collection, Iterable, Mapping

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Record, Run
from benchmarks.papers.sets import SETS

__all__ = ["RATES", "Rates", "rates_of", "tuning_runs"]

RATES = (3e-5, 1e-4, 3e-4)
"""The grid, the same for all."""

Rates = dict[tuple[str, str], float]
"""The rate of each set and case."""


def tuning_runs(cases: Collection[tuple[str, str]], steps: int) -> list[Run]:
    """Return the runs that choose the rates of some sets and cases, by seed 0."""
    return [
        Run(
            "tuning",
            name,
            CASES[name].tables(set_, {"fit": {"steps": steps, "learning_rate": rate}}),
            rate,
            split="validation",
            unit_length=CASES[name].unit_length,
        )
        for rate in RATES  # so that at first each process compiles another loss
        for set_, name in cases
    ]


def rates_of(runs: Iterable[Run], results: Mapping[str, Record]) -> Rates:
    """Return the best rate of each set and case whose whole grid was run.

    A run that diverged is never the best, and of equal ones the smaller rate is. Where
    all diverged there is none.

    Args:
        runs: The runs that choose.
        results: Records by the keys of their runs.
    """
    grids: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in runs:
        grid = grids.setdefault((run.set, run.series), [])
        if run.key in results:
            metrics = SETS[run.set].metrics
            sign = -1 if metrics.less_is_better else 1
            found = results[run.key].get("metrics")
            reached = sign * found[metrics.chosen_by] if found else -math.inf
            grid.append((reached, -run.tables["fit"]["learning_rate"]))
    best = {
        place: max(grid) for place, grid in grids.items() if len(grid) == len(RATES)
    }
    return {
        place: -rate for place, (reached, rate) in best.items() if reached > -math.inf
    }
