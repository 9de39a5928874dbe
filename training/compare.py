"""Which run is better, and what of it may be chance."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.bootstrap import Difference, paired_difference
from training.query_files import NamedResults, read_queries

__all__ = ["Compared", "Comparison", "compare", "results_folder"]

_CLASSES = ("precision_at_1", "r_precision", "map_at_r", "mean_average_precision")


@dataclass(frozen=True)
class Compared:
    """One model: a run, or several that differ in their seed alone.

    Args:
        name: The name of its first run.
        folders: Its run folders.
        means: By metric: the mean over queries of each run, float64 `[runs]`.
        differences: By metric: how much higher its mean over runs is than that of the
            first model; none for the first model itself, or where there is one class
            alone.
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
    with the first by `tfdml.bootstrap.paired_difference`: classes are drawn anew and,
    of a model with several runs, runs. The intervals are of 95 % for each difference by
    itself: of twenty models that are all alike, one would seem to differ.

    Args:
        folders: Run folders, or folders that `evaluate` wrote, at least two. Of a run
            that has been evaluated, the evaluation counts.
        metrics: Which metrics; by default Precision@1, R-precision, MAP@R and mAP, with
            continuous labels all.

    Returns:
        The comparison.

    Raises:
        ValueError: There are fewer than two models, one has no results of single
            queries, they were measured on different queries, or a metric is unknown.
    """
    models = _grouped([Path(folder) for folder in folders])
    if len(models) < 2:
        raise ValueError(
            "`folders` must hold at least two models; runs that differ in their seed "
            f"alone are one. Received: {len(folders)} runs of {len(models)}."
        )
    found = [
        [read_queries(results_folder(folder)) for folder in model] for model in models
    ]
    first, names = found[0][0], [str(model[0]) for model in models]
    _check_same_queries(first, models, found)
    chosen = _chosen(first, metrics)
    for model, runs in zip(names, found, strict=True):
        for name in chosen:
            if any(name not in run.results.values for run in runs):
                raise ValueError(
                    f"`metrics` must have been measured of every run. {model!r} has no "
                    f"{name!r}."
                )
    classes = first.results.classes
    several = len(np.unique(classes)) > 1
    values = [
        {name: np.stack([_values(first, r, name) for r in runs]) for name in chosen}
        for runs in found
    ]
    compared = []
    for number, (folders_of, by_metric) in enumerate(zip(models, values, strict=True)):
        differences = {}
        if number and several:
            differences = {
                name: paired_difference(values[0][name], by_metric[name], classes)
                for name in chosen
            }
        means = {name: rows.mean(axis=1) for name, rows in by_metric.items()}
        name = folders_of[0].name
        compared.append(Compared(name, tuple(folders_of), means, differences))
    return Comparison(tuple(compared), chosen, len(classes), len(np.unique(classes)))


def _grouped(folders: Sequence[Path]) -> list[list[Path]]:
    """Put runs of one recipe together, in the order of the first of each."""
    groups: dict[str, list[Path]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"There is no run folder {str(folder)!r}.")
        file = folder / "recipe.json"
        key = str(folder.resolve())
        if file.is_file():
            recipe: dict[str, Any] = json.loads(file.read_text("utf-8"))
            recipe["fit"] = {**recipe["fit"], "seed": None}
            key = json.dumps(recipe, sort_keys=True)
        if folder.resolve() in [f.resolve() for f in groups.get(key, [])]:
            raise ValueError(f"`folders` must not hold {str(folder)!r} twice.")
        groups.setdefault(key, []).append(folder)
    return list(groups.values())


def results_folder(folder: Path) -> Path:
    """Return where a run's results of single queries are."""
    evaluated = folder / "evaluation"
    return evaluated if evaluated.is_dir() else folder


def _check_same_queries(
    first: NamedResults,
    models: Sequence[Sequence[Path]],
    found: Sequence[Sequence[NamedResults]],
) -> None:
    expected = set(first.names.tolist())
    for folders, runs in zip(models, found, strict=True):
        for folder, run in zip(folders, runs, strict=True):
            other = set(run.names.tolist())
            if other == expected:
                continue
            example = min(expected ^ other)
            raise ValueError(
                f"All runs must have been measured with the same queries. "
                f"{str(models[0][0])!r} has {len(expected)}, {str(folder)!r} "
                f"{len(other)}; in one alone, for example: {example!r}. Evaluate them "
                "on the same images with `python -m training evaluate`."
            )


def _chosen(first: NamedResults, metrics: Sequence[str] | None) -> tuple[str, ...]:
    known = first.results.values
    if metrics is None:
        is_of_classes = first.results.first_ranks is not None
        return tuple(name for name in known if not is_of_classes or name in _CLASSES)
    for name in metrics:
        if name not in known:
            raise ValueError(
                f"`metrics` must be some of {', '.join(known)}. Received: {name!r}."
            )
    return tuple(metrics)


def _values(first: NamedResults, run: NamedResults, metric: str) -> np.ndarray:
    """Return the metric of each query, in the order of the first run."""
    order = np.argsort(run.names)[np.argsort(np.argsort(first.names))]
    return run.results.values[metric][order]
