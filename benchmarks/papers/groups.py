"""Group results by series and point, over seeds."""

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.papers.runs import FLOOR, Record
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import STUDIES, Variant

Groups = dict[tuple[str, Any], list[Record]]

_PROTOCOL = (
    "thinned",
    "noise",
    "prefix",
    "prefixes",
    "unit_length",
    "split",
    "with_curve",
    "is_trained",
    "is_timed",
)


def of_studies(
    records: Iterable[Record],
) -> Iterator[tuple[str, str, list[Record], list[Record]]]:
    """Yield the name of each study, each set, the results there, and of the floor.

    Args:
        records: Results of all studies; those without any on a set are left out.
    """
    by_place: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_place.setdefault((record["study"], record["set"]), []).append(record)
    for name in STUDIES:
        for set_ in SETS:
            if chosen := by_place.get((name, set_)):
                yield name, set_, chosen, by_place.get((FLOOR, set_), [])


def grouped(records: Iterable[Record]) -> Groups:
    """Return the runs of each series and point, which differ by the seed.

    Args:
        records: Results of one study on one set, and of what was not trained.

    Raises:
        ValueError: Two runs of a series and point differ in more than the seed, or not
            in the seed.
    """
    groups: Groups = {}
    for record in records:
        groups.setdefault((record["series"], record["point"]), []).append(record)
    for group in groups.values():
        _check(group)
    return groups


def _check(group: list[Record]) -> None:
    about = [dict(_settings(record)) for record in group]
    seeds = [settings.pop("fit.seed", None) for settings in about]
    wrong = []
    for name in sorted(set().union(*about)):
        values = [json.dumps(settings.get(name)) for settings in about]
        if len(set(values)) > 1:
            wrong.append(f"{name} = {' and '.join(dict.fromkeys(values))}")
    if not wrong and len(set(seeds)) < len(seeds):
        wrong = [f"fit.seed = {statistics.mode(seeds)} more than once"]
    if wrong:
        first = group[0]
        at = "" if first["point"] is None else f" at {text_of(first['point'])}"
        raise ValueError(
            "`results` must be files of one protocol: the runs of a series and point "
            f"must differ in the seed alone. Received, of {first['study']} on "
            f"{first['set']}, {first['series']}{at}: {'; '.join(wrong)}."
        )


def _settings(record: Record) -> Iterator[tuple[str, Any]]:
    for table, keys in record["tables"].items():
        for key, value in keys.items():
            yield f"{table}.{key}", value
    for name in _PROTOCOL:
        yield name, record.get(name)  # an earlier file does not have each


def validated(records: Iterable[Record]) -> list[Record]:
    """Return results with the metrics of validation images as their metrics.

    Runs that were not measured on validation images are left out, those that diverged
    are not.
    """
    return [
        record | ({"metrics": record["validation"]} if "validation" in record else {})
        for record in records
        if "validation" in record
        or ("diverged_at" in record and not record["is_timed"])
    ]


def points_of(records: Sequence[Record]) -> list[Any]:
    """Return the points: numbers in ascending order, words in that of their study."""
    points = list(dict.fromkeys(record["point"] for record in records))
    if not any(isinstance(point, str) for point in points):
        return sorted(points)
    return _as_in_study(points, records[0], lambda variant: variant.point)


def series_of(records: Sequence[Record]) -> list[str]:
    """Return the series in the order of their study."""
    series = list(dict.fromkeys(record["series"] for record in records))
    return _as_in_study(series, records[0], lambda variant: variant.name)


def _as_in_study(
    values: list[Any], record: Record, of: Callable[[Variant], Any]
) -> list[Any]:
    """Return values in the order of the study of a record, unknown ones last."""
    order = [of(variant) for variant in STUDIES[record["study"]].of(record["set"])]
    return sorted(values, key=[*order, *values].index)


def text_of(point: Any) -> str:
    """Return a point as it is written."""
    return f"{point:g}" if isinstance(point, int | float) else str(point)


def diverged(runs: Iterable[Record]) -> str:
    """Count the runs that diverged, as text after a space; empty where none did."""
    count = sum("diverged_at" in run for run in runs)
    return f" ({count} diverged)" if count else ""


def mean(values: Sequence[float]) -> float:
    """Return the mean over seeds."""
    return statistics.fmean(values)


def spread(values: Sequence[float]) -> float:
    """Return half the range over seeds."""
    return (max(values) - min(values)) / 2
