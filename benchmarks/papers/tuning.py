"""Choose the learning rate of each loss on validation classes, from a small grid."""

import math
from collections.abc import Collection, Mapping

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Record, Run
from benchmarks.papers.sets import SETS

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""The grid, the same for all. An end is tried where the rate next to it is the best."""
_FIRST = RATES[1:-1]

Rates = dict[tuple[str, str], float]
"""The rate of each set and case."""


def tuning_runs(cases: Collection[tuple[str, str]], steps: int) -> list[Run]:
    """Return the runs that choose the rates of some sets and cases, by seed 0."""
    # At first each process compiles another loss.
    return [_run(set_, name, rate, steps) for rate in _FIRST for set_, name in cases]


def more_tuning_runs(best: Rates, steps: int) -> list[Run]:
    """Return those at an end of the grid, where the rate next to it is the best.

    Args:
        best: The best rates of `tuning_runs`.
        steps: As there.
    """
    ends = {RATES[1]: RATES[0], RATES[-2]: RATES[-1]}
    return [
        _run(set_, name, ends[rate], steps)
        for (set_, name), rate in best.items()
        if rate in ends
    ]


def _run(set_: str, name: str, rate: float, steps: int) -> Run:
    case = CASES[name]
    return Run(
        "tuning",
        name,
        case.tables(set_, {"fit": {"steps": steps, "learning_rate": rate}}),
        rate,
        split="validation",
        unit_length=case.unit_length,
    )


def rates_of(runs: Collection[Run], results: Mapping[str, Record]) -> Rates:
    """Return the best rate of each set and case all of whose runs were done.

    A run that diverged is never the best, and of equal ones the smaller rate is. Where
    all diverged there is none.

    Args:
        runs: The runs that choose.
        results: Records by the keys of their runs.
    """
    missing = {(run.set, run.series) for run in runs if run.key not in results}
    grids: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in runs:
        place = run.set, run.series
        if place in missing:
            continue
        metrics = SETS[run.set].metrics
        sign = -1 if metrics.less_is_better else 1
        found = results[run.key].get("metrics")
        reached = sign * found[metrics.chosen_by] if found else -math.inf
        grid = grids.setdefault(place, [])
        grid.append((reached, -run.tables["fit"]["learning_rate"]))
    best = {place: max(grid) for place, grid in grids.items()}
    return {
        place: -rate for place, (reached, rate) in best.items() if reached > -math.inf
    }
