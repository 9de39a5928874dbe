"""Write the results of a run as text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..data.split import Split
from ..recipe.recipe import Recipe
from .threshold import threshold_rows, threshold_warning

_ABREAST = 6  # metrics that fit into a line
_FURTHER = ("r_precision", "mean_average_precision", "mean_reciprocal_rank", "roc_auc")
_RERANKED = ("precision_at_1", "r_precision", "map_at_r", "mean_average_precision")
_TITLES = {
    "map_at_r": "MAP@R",
    "r_precision": "R-precision",
    "mean_average_precision": "mAP",
    "mean_reciprocal_rank": "MRR",
    "roc_auc": "AUC",
}


def begun(recipe: Recipe, splits: Mapping[str, Split], where: str) -> str:
    """Write what a run trains on and how, before it begins.

    Args:
        recipe: The recipe.
        splits: The images of each split.
        where: Backend and devices.

    Returns:
        Two lines of text.
    """
    parts = []
    for name, split in splits.items():
        if images := len(split.data):
            classes = len(split.data.class_names)
            of_classes = "" if split.data.is_continuous else f" of {classes:,} classes"
            parts.append(f"{name} {images:,} images{of_classes}")
    network, settings = recipe.embedder, recipe.fit
    start = f" from {network.weights}" if network.weights else ""
    old = f", compatible with {recipe.compatible.run}" * bool(recipe.compatible.run)
    old += f", taught by {recipe.teacher.run}" * bool(recipe.teacher.run)
    length = f"{settings.steps:,} steps"
    if settings.minutes:
        length = f"{settings.minutes:g} minutes"
    return (
        f"{recipe.data.images}: {'; '.join(parts)}\n"
        f"{network.backbone} network{start}, {network.image_size} pixels to "
        f"{network.embedding_dimension} dimensions; {recipe.loss.name}{old}; "
        f"{length}, {settings.epoch_steps:,} steps per epoch, on {where}"
    )


def trained(results: dict[str, Any]) -> str:
    """Write how many steps a run trained, and in which time.

    Args:
        results: The contents of a run's `metrics.json`.

    Returns:
        Such as "1,040 steps in 4 min 0 s"; the time alone for a run of an earlier
        version.
    """
    minutes, seconds = divmod(round(results["seconds_of_training"]), 60)
    time = f"{minutes} min {seconds} s"
    if "steps_of_training" not in results:
        return time
    steps = results["steps_of_training"]
    return f"{steps:,} step{'s' * (steps != 1)} in {time}"


def summary(results: dict[str, Any]) -> str:
    """Write the contents of a run's `metrics.json` as a table.

    Args:
        results: What `training.run.fit.fit` returned.

    Returns:
        Several lines of text.
    """
    count, classes = results["images"]["test"], results["classes"]["test"]
    of_classes = f" of {classes} classes" if classes else ""
    head = f"{count} test images{of_classes} that training never saw"
    names, rows = measured_rows(results)
    names = [name for name in names if not is_further(name)]
    if not names:
        return f"{head}: nothing to measure."
    table = [["", *map(metric_title, names)]]
    for row, values in rows.items():
        table.append([row, *(metric_text(name, values[name]) for name in names)])
    # A line per metric where all of them in one would be too long.
    is_long = len(names) > _ABREAST
    lines = [head, *aligned(zip(*table, strict=True) if is_long else table)]
    without = results["test_after_training"].get("queries_without_positive")
    if without:
        lines.append(
            f"{without} images are alone in their class and are not used as queries."
        )
    if of_paper := results.get("table"):
        lines += ["", *table_lines(of_paper)]
    if warning := no_gain(results):
        lines.append(warning)
    return "\n".join(lines)


def aligned(table: Iterable[Sequence[str]]) -> list[str]:
    """Write rows of cells as lines: the first column to the left, others right."""
    rows = [list(row) for row in table]
    first, *others = (
        [len(cell) + 2 for cell in column] for column in zip(*rows, strict=True)
    )
    widths = [max(14, *lengths) for lengths in others]
    return [
        row[0].ljust(max(20, *first)) + "".join(map(str.rjust, row[1:], widths))
        for row in rows
    ]


def table_lines(table: Mapping[str, Any]) -> list[str]:
    """Write a paper's table, filled with what was measured.

    Args:
        table: What `training.recipe.paper_tables.filled_table` returned.

    Returns:
        A line on where it stands, its head, its values as the papers print them, and
        what is to be known of them.
    """
    columns = table["columns"]
    titles = list(columns)
    cells = [paper_text(title, value) for title, value in columns.items()]
    widths = [
        max(8, len(title) + 2, len(cell) + 2)
        for title, cell in zip(titles, cells, strict=True)
    ]
    lines = [
        f"The columns of {table['source']} (shares in percent):",
        "".join(map(str.rjust, titles, widths)),
        "".join(map(str.rjust, cells, widths)),
    ]
    if None in columns.values():
        lines.append("-: the images are too few for this k.")
    return [*lines, *([table["note"].strip()] if table["note"] else [])]


def paper_text(title: str, value: float | None) -> str:
    """Return a number of a paper's table as papers print it.

    Args:
        title: The title of its column.
        value: A share from 0 to 1 or a label distance; None if not measured.
    """
    if value is None:
        return "-"
    return f"{value:.4g}" if title.startswith("D@") else f"{100 * value:.2f}"


def no_gain(results: dict[str, Any]) -> str:
    """Warn of a run that ended no better than it began, or than raw pixels.

    Args:
        results: The contents of a run's `metrics.json`.

    Returns:
        One sentence on the numbers and one on what to try; empty after a gain.
    """
    names, rows = measured_rows(results)
    if not names:
        return ""
    is_distance = "precision_at_1" not in names
    name = names[0] if is_distance else "precision_at_1"
    values = {
        title: row[name] * (-1 if is_distance else 1) for title, row in rows.items()
    }
    reached = values.pop("after training")
    if reached > max(values.values()):
        return ""
    shown = {title: metric_text(name, row[name]) for title, row in rows.items()}
    return (
        f"Training gained nothing: {metric_title(name)} is {shown['after training']}; "
        f"before training it was {shown['before training']}, and raw pixels have "
        f"{shown['raw 32 x 32 pixels']}. Train for more steps, with more images per "
        "batch, with another loss such as MultiSimilarityLoss, or from trained weights."
    )


def evaluation_summary(results: dict[str, Any]) -> str:
    """Write the contents of an evaluation's `metrics.json` as a table."""
    lines = [
        f"{results['queries']:,} queries among {results['gallery']:,} images"
        + _compared_by(results),
        f"{'':<24}{'mean':>10}   95 % interval",
    ]
    for name, value in results["metrics"].items():
        low, high = results["intervals"].get(name, (None, None))
        interval = (
            ""
            if low is None
            else f"   {metric_text(name, low)} to {metric_text(name, high)}"
        )
        lines.append(
            f"{metric_title(name):<24}{metric_text(name, value):>10}{interval}"
        )
    if without := results["queries_without_positive"]:
        lines.append(f"{without:,} queries have no positive and are left out.")
    if "reranked" in results:
        lines += ["", *aligned(reranked_table(results)), ""]
    if table := results.get("table"):
        lines += ["", *table_lines(table), ""]
    if trained := results["classes_trained_on"]:
        lines.append(
            f"{trained:,} classes share the name of a class that the run trained on."
        )
    if at := results.get("at_threshold"):
        lines.append(f"At the run's threshold, a similarity of {at['threshold']:.4f}:")
        lines += [f"  {name:<21}{text}" for name, text in threshold_rows(at)]
        if warning := threshold_warning(at):
            lines.append(f"warning: {warning}")
    return "\n".join(lines)


def reranked_table(results: Mapping[str, Any]) -> list[list[str]]:
    """Return the metrics with and without re-ranking as rows of text, with a head."""
    rows = {"as searched": (results["metrics"], results["seconds"]["retrieval"])}
    for name, found in results["reranked"].items():
        k = found["options"].get("k", found["options"].get("k1"))
        rows[f"{name}, {k} neighbors"] = found["metrics"], found["seconds"]
    head = ["", *map(metric_title, _RERANKED), "seconds"]
    return [head] + [
        [
            title,
            *(metric_text(name, metrics[name]) for name in _RERANKED),
            f"{time:.1f}",
        ]
        for title, (metrics, time) in rows.items()
    ]


def _compared_by(results: Mapping[str, Any]) -> str:
    is_cosine = results.get("compared_by", "cosine") == "cosine"
    return "" if is_cosine else ", compared by squared Euclidean distance"


def measured_rows(
    results: dict[str, Any],
) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Return the names of the test metrics, and their values by what was measured."""
    rows = {
        "before training": results["test_before_training"],
        "after training": results["test_after_training"],
        "raw 32 x 32 pixels": results["test_of_raw_32x32_pixels"],
    }
    after = rows["after training"] or {}
    # A run of an earlier version that went on may have measured less before.
    names = [n for n in after if all(n in (row or {}) for row in rows.values())]
    return [name for name in names if not name.startswith("queries")], rows


def is_further(name: str) -> bool:
    """Return whether a metric is left out where only the main ones have room."""
    return name.removeprefix("val_") in _FURTHER


def metric_title(name: str) -> str:
    """Return how a metric is called in text: "Precision@1" for "precision_at_1"."""
    name = re.sub(r"^val_", "validation ", name)
    for word, title in (
        ("precision", "Precision"),
        ("recall", "Recall"),
        ("ndcg", "nDCG"),
        ("label_distance", "label distance"),
    ):
        name = re.sub(rf"\b{word}_at_(\d+)", rf"{title}@\1", name)
    for word, title in _TITLES.items():
        name = name.replace(word, title)
    return name.replace("_", " ")


def metric_text(name: str, value: float) -> str:
    """Return a metric as people read it: shares in percent, others in four digits."""
    if re.search(
        r"(precision|recall|map|ndcg)_at_|r_precision|^(val_)?mean_|roc_auc", name
    ):
        return f"{100 * value:.1f}%"
    return f"{value:.4g}"
