"""Choose the learning rate of each loss on validation classes, from a small grid."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Record, Run, Tables
from benchmarks.papers.sets import SETS

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
"""The grid, the same for all. An end is tried where the rate next to it is the best."""
_FIRST = RATES[1:-1]


@dataclass(frozen=True)
class Place:
    """For what a learning rate is chosen.

    Args:
        set: Which set.
        case: Which loss.
        changed: The tables that are not as usual, as JSON.
        thinned: As in `Run`.
    """

    set: str
    case: str
    changed: str = "{}"
    thinned: float = 0.0

    @classmethod
    def of(cls, set_: str, case: str, changes: Tables, thinned: float) -> "Place":
        """Return the place of a case, or of the case whose rate it takes."""
        changed = json.dumps(changes, sort_keys=True)
        return cls(set_, CASES[case].rate_of or case, changed, thinned)

    @property
    def name(self) -> str:
        """How it is called in messages."""
        changed = "" if self.changed == "{}" else f" with {self.changed}"
        return f"{self.case} on {self.set}{changed}"

    def run(self, rate: float, steps: int) -> Run:
        """Return a run that tries a rate, by seed 0."""
        case = CASES[self.case]
        changed = json.loads(self.changed)
        fit = {"steps": steps, "learning_rate": rate} | changed.get("fit", {})
        return Run(
            "tuning",
            self.case,
            case.tables(self.set, changed | {"fit": fit}),
            rate,
            split="validation",
            thinned=self.thinned,
            unit_length=case.unit_length,
        )


Rates = dict[Place, float]
"""The rate that is chosen for each place."""

Tuning = list[tuple[Place, Run]]


def tuning_runs(places: Collection[Place], steps: int) -> Tuning:
    """Return the runs that choose the rates of some places."""
    # At first each process compiles another loss.
    return [(place, place.run(rate, steps)) for rate in _FIRST for place in places]


def more_tuning_runs(best: Rates, steps: int) -> Tuning:
    """Return those at an end of the grid, where the rate next to it is the best.

    Args:
        best: The best rates of `tuning_runs`.
        steps: As there.
    """
    ends = {RATES[1]: RATES[0], RATES[-2]: RATES[-1]}
    return [
        (place, place.run(ends[rate], steps))
        for place, rate in best.items()
        if rate in ends
    ]


def rates_of(tuning: Tuning, results: Mapping[str, Record]) -> Rates:
    """Return the best rate of each place all of whose runs were done.

    A run that diverged is never the best, and of equal ones the smaller rate is. Where
    all diverged there is none.

    Args:
        tuning: The runs that choose.
        results: Records by the keys of their runs.
    """
    missing = {place for place, run in tuning if run.key not in results}
    grids: dict[Place, list[tuple[float, float]]] = {}
    for place, run in tuning:
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
