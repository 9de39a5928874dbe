"""Compare runs query by query, with intervals of their differences."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from tfdml.command_parser import command
from tfdml.messages import cut, shortened, shown
from tfdml.metrics import Difference, paired_difference

from ..json_files import read_json
from ..measure.query_files import NamedResults, read_queries
from ..recipe.recipe import with_current_names

_CLASSES = ("precision_at_1", "r_precision", "map_at_r", "mean_average_precision")


@dataclass(frozen=True)
class Compared:
    """One model: a run, or several that differ in their seed alone.

    Args:
        name: The name of its first run's folder, or the path if names are ambiguous.
        folders: Its run folders.
        means: By metric: the mean over queries of each run, float64 `[runs]`.
        differences: By metric: how much higher its mean over runs is than that of the
            first model; none for the first model itself, or for a single class.
    """

    name: str
    folders: tuple[Path, ...]
    means: dict[str, np.ndarray]
    differences: dict[str, Difference]


@dataclass(frozen=True)
class Comparison:
    """Models measured on the same queries.

    Args:
        models: The first is what the others are compared with.
        metrics: Which metrics are compared.
        queries: How many queries there are.
        classes: Of how many classes.
    """

    models: tuple[Compared, ...]
    metrics: tuple[str, ...]
    queries: int
    classes: int


def compare(
    folders: Sequence[str | PathLike[str]], *, metrics: Sequence[str] | None = None
) -> Comparison:
    """Compare the test results of runs, query by query.

    Runs with the same recipe but for the seed are one model. Each model is compared
    with the first by `tfdml.metrics.paired_difference`: classes are resampled and,
    for a model with several runs, runs. The intervals are of 95 % for each difference
    by itself: of twenty equal models, one would seem to differ.

    Args:
        folders: Run folders, or folders that `evaluate` wrote, at least two. Of a run
            that has been evaluated, the evaluation counts.
        metrics: Which metrics; by default Precision@1, R-precision, MAP@R and mAP, with
            continuous labels all.

    Returns:
        The comparison.

    Raises:
        ValueError: There are fewer than two models, one has no results of single
            queries, they were measured with other queries, labels or galleries, or a
            metric is unknown.
    """
    models = _grouped([Path(folder) for folder in folders])
    if len(models) < 2:
        raise ValueError(
            "`folders` must hold at least two models; runs that differ in their seed "
            f"alone are one. Received: {len(folders)} runs of {len(models)}."
        )
    found = [[read_queries(results_folder(folder)) for folder in m] for m in models]
    first = found[0][0]
    for folders_of, runs in zip(models, found, strict=True):
        for folder, run in zip(folders_of, runs, strict=True):
            _check_same_task(first, models[0][0], run, folder)
    chosen = _chosen([run for runs in found for run in runs], metrics)
    for folders_of, runs in zip(models, found, strict=True):
        for folder, run in zip(folders_of, runs, strict=True):
            _check_measured(chosen, run, folder)
    classes = first.results.classes
    several = len(np.unique(classes)) > 1
    values = [
        {name: np.stack([_values(first, r, name) for r in runs]) for name in chosen}
        for runs in found
    ]
    compared = []
    names = _names([folders_of[0] for folders_of in models])
    for number, (folders_of, by_metric) in enumerate(zip(models, values, strict=True)):
        differences = {}
        if number and several:
            differences = {
                name: paired_difference(values[0][name], by_metric[name], classes)
                for name in chosen
            }
        means = {name: rows.mean(axis=1) for name, rows in by_metric.items()}
        compared.append(Compared(names[number], tuple(folders_of), means, differences))
    return Comparison(tuple(compared), chosen, len(classes), len(np.unique(classes)))


def _grouped(folders: Sequence[Path]) -> list[list[Path]]:
    """Group runs of one recipe, in the order of the first of each."""
    groups: dict[str, list[Path]] = {}
    seen: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"There is no run folder {shown(str(folder))}.")
        file = folder / "recipe.json"
        key = whole = str(folder.resolve())
        if file.is_file():
            recipe = read_json(file)
            try:
                # What is measured makes no other model.
                recipe = {**with_current_names(recipe), "evaluation": None}
                whole = json.dumps(recipe, sort_keys=True)
                fit = {**recipe["fit"], "seed": None}
                key = json.dumps({**recipe, "fit": fit}, sort_keys=True)
            except (AttributeError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{file} is not a recipe of a run ({shortened(error)})."
                ) from error
        if whole in seen:
            raise ValueError(
                "`folders` must not hold two runs of one recipe and seed. Received: "
                f"{shown(str(seen[whole]))} and {shown(str(folder))}."
            )
        seen[whole] = folder
        groups.setdefault(key, []).append(folder)
    return list(groups.values())


def _names(folders: Sequence[Path]) -> list[str]:
    """Name models by their folders, or by the paths if that is ambiguous."""
    resolved = [folder.resolve() for folder in folders]
    short = [
        folder.parent.name if folder.name == "evaluation" else folder.name
        for folder in resolved
    ]
    return [
        name if short.count(name) == 1 else str(folder)
        for name, folder in zip(short, folders, strict=True)
    ]


def results_folder(folder: Path) -> Path:
    """Return where a run's results of single queries are."""
    evaluated = folder / "evaluation"
    return evaluated if evaluated.is_dir() else folder


def _check_same_task(
    first: NamedResults, first_folder: Path, run: NamedResults, folder: Path
) -> None:
    """Refuse results of other queries, other labels or another gallery."""
    remedy = (
        f"Evaluate them on the same images with `{command('training', 'evaluate')}`."
    )
    both = f"{shown(str(first_folder), 80)} and {shown(str(folder), 80)}"
    expected, received = (
        dict(zip(r.names.tolist(), r.results.classes.tolist(), strict=True))
        for r in (first, run)
    )
    if len(received) < len(run.names):
        raise ValueError(
            f"Each query must have its own name. {shown(str(folder))} has "
            f"{len(run.names)} queries of {len(received)} names."
        )
    if expected.keys() != received.keys():
        raise ValueError(
            f"All runs must have been measured with the same queries. {both} have "
            f"{len(expected)} and {len(received)}; in only one of them, for example: "
            f"{shown(min(expected.keys() ^ received.keys()))}. {remedy}"
        )
    other = [name for name, label in expected.items() if received[name] != label]
    if other and first.results.first_ranks is not None:
        raise ValueError(
            f"All runs must have been measured with the same labels. {shown(other[0])} "
            f"is {shown(expected[other[0]])} and {shown(received[other[0]])} in "
            f"{both}. {remedy}"
        )
    if first.searched != run.searched:
        raise ValueError(
            "All runs must have been measured in the same gallery with the same labels "
            f"and sequences: those of {both} differ. {remedy}"
        )


def _check_measured(metrics: Sequence[str], run: NamedResults, folder: Path) -> None:
    missing = [name for name in metrics if name not in run.results.values]
    if missing:
        raise ValueError(
            f"`metrics` must have been measured of every run. {shown(str(folder))} has "
            f"no {shown(missing[0])}. Measure it with "
            f"`{command('training', 'evaluate')} {folder}`."
        )


def _chosen(
    runs: Sequence[NamedResults], metrics: Sequence[str] | None
) -> tuple[str, ...]:
    first = runs[0]
    known = first.results.values
    if metrics is None:
        is_of_classes = first.results.first_ranks is not None
        return tuple(name for name in known if not is_of_classes or name in _CLASSES)
    every = {name for run in runs for name in run.results.values}
    for name in metrics:
        if name not in every:
            raise ValueError(
                f"`metrics` must be some of {cut(', '.join(sorted(every)))}. "
                f"Received: {shown(name)}."
            )
    return tuple(metrics)


def _values(first: NamedResults, run: NamedResults, metric: str) -> np.ndarray:
    """Return the metric of each query, in the order of the first run."""
    order = np.argsort(run.names)[np.argsort(np.argsort(first.names))]
    return run.results.values[metric][order]
