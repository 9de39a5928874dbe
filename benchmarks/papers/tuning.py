"""The learning rate of each loss, chosen on validation classes from one small grid."""

from collections.abc import Iterable
from typing import Any

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Run
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


def tuning_runs(cases: Iterable[str], sets: Iterable[str], steps: int) -> list[Run]:
    """Return the runs from which the rates of some cases are chosen, by seed 0."""
    return [
        Run(
            _STUDY,
            name,
            CASES[name].tables(set_, fit={"steps": steps, "learning_rate": rate}),
            split="validation",
        )
        for set_ in sets
        for name in cases
        if CASES[name].suits(set_)
        for rate in RATES
    ]


def rates_of(results: Iterable[dict[str, Any]]) -> Rates:
    """Return the best rate of each set and case, among runs that did not diverge.

    Args:
        results: Records of results, of all studies.
    """
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for record in results:
        if record["study"] != _STUDY or "metrics" not in record:
            continue
        metric, sign = _CHOSEN_BY[SETS[record["set"]].is_continuous]
        place = record["set"], record["name"]
        reached = sign * record["metrics"][metric]
        if place not in best or reached > best[place][0]:
            best[place] = reached, record["tables"]["fit"]["learning_rate"]
    return {place: rate for place, (_, rate) in best.items()}
