"""Write the report of a run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.figure_style import draw_runs, legend_below, new_figure, plain_axes

from ..json_files import read_json
from ..recipe.published import Published
from ..recipe.recipe import Recipe, with_current_names
from .page import (
    Figure,
    Section,
    Table,
    environment_section,
    paper_section,
    write_page,
)
from .published import published_section, tested
from .text import (
    is_further,
    measured_rows,
    metric_text,
    metric_title,
    no_gain,
    trained,
)

_DRAWINGS = {
    "from all": "Randomly drawn queries, each with its nearest neighbors",
    "from failures": "Queries whose nearest neighbor is of another class",
}


def write_report(run: Path) -> Path:
    """Write `report.html` from the JSON files of a finished run.

    Args:
        run: The run folder.

    Returns:
        Path of the report.

    Raises:
        ValueError: The folder holds no finished run.
    """
    if not (run / "metrics.json").is_file():
        raise ValueError(f"{run} holds no finished run (no metrics.json).")
    results, history, recipe = (
        read_json(run / f"{name}.json") for name in ("metrics", "history", "recipe")
    )
    sheet = run / "neighbors.json"
    queries = [_query(query) for query in read_json(sheet)] if sheet.exists() else []
    split = results.get("searches_of", "test")
    path = run / "report.html"
    write_page(
        path,
        run.name.removesuffix(".unfinished"),
        _lead(results, recipe, history),
        "run.html",
        measured=_measured(results),
        paper_table=paper_section(results),
        published=_published(results, recipe),
        curves=_curves(history, results.get("best_epoch", 0)),
        queries=queries,
        drawings=_DRAWINGS,
        searched="training" if split == "train" else split,
        has_classes=any(
            neighbor["positive"] is not None
            for query in queries
            for neighbor in query["neighbors"]
        ),
        images=_images(results),
        recipe=_recipe(recipe),
        environment=environment_section(results.get("environment", {})),
    )
    return path


def _lead(
    results: dict[str, Any], recipe: dict[str, Any], history: dict[str, Any]
) -> str:
    epochs = len(history.get("loss", ()))
    text = (
        f"{recipe['loss']['name']}, {recipe['embedder']['backbone']} network, "
        f"{epochs} epochs, {trained(results)} on {results['backend']}"
    )
    if best := results.get("best_epoch"):
        return f"{text}; the weights of epoch {best}, the best on validation, are kept."
    return f"{text}."


def _measured(results: dict[str, Any]) -> Section:
    names, rows = measured_rows(results)
    if not names:
        return Section("Test", "No test image has another to find.")
    cells = [
        [title, *(metric_text(name, values[name]) for name in names)]
        for title, values in rows.items()
    ]
    table = Table(["", *map(metric_title, names)], cells, main="after training")
    title = "Test images, never seen in training"
    return Section(title, no_gain(results), tables=[table])


def _published(results: dict[str, Any], recipe: dict[str, Any]) -> Section | None:
    published = Published(**recipe.get("published", {}))
    return published_section(published, tested(results))


def _curves(history: dict[str, Any], best: int) -> Section:
    charts = {}
    shares: dict[str, list[float]] = {}
    for name, values in history.items():
        if is_further(name) or name in ("val_recall_at_1", "triplets", "test"):
            continue  # Recall@1 is Precision@1
        title = metric_title(name.removeprefix("val_"))
        if not name.startswith("val_"):
            charts[title[0].upper() + title[1:]] = {title: values}
        elif metric_text(name, 0.0).endswith("%"):
            charts["Validation"] = shares
            shares[title] = values
        else:
            charts[f"Validation: {title}"] = {title: values}
    return Section(
        "Curves",
        f"The dashed line marks epoch {best}, whose weights are kept." if best else "",
        figures=[
            Figure(title, "", draw_curves(series, series is shares, best))
            for title, series in charts.items()
        ]
        + _curves_on_test(history.get("test", {})),
    )


def _curves_on_test(curve: dict[str, list[float]]) -> list[Figure]:
    """Draw what was measured of the test images in the course of training."""
    charts: dict[str, dict[str, list[float]]] = {}
    for name, values in curve.items():
        if is_further(name) or name in ("epoch", "step", "recall_at_1"):
            continue
        title = metric_title(name)
        is_share = metric_text(name, 0.0).endswith("%")
        charts.setdefault("Test" if is_share else f"Test: {title}", {})[title] = values
    note = "On request and for the record: no weights are chosen by it."
    return [
        Figure(
            title,
            note,
            draw_curves(series, title == "Test", 0, steps=curve["step"]),
        )
        for title, series in charts.items()
    ]


def draw_curves(
    series: dict[str, list[float]],
    in_percent: bool,
    best: int,
    *,
    steps: list[float] | None = None,
) -> Any:
    """Draw values by epoch; a value that is not finite leaves a gap.

    Args:
        series: Values of epoch 1, 2 and so on, by name.
        in_percent: Whether the values are shares, 0 to 1, to be shown in percent.
        best: An epoch to mark by an upright line; 0: none.
        steps: The step of each value, where they are not those of epoch 1, 2 and so on.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    figure = new_figure(5.2, 2.8)
    # Only now: `new_figure` says what to install where matplotlib is missing.
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes = figure.subplots()
    curves = {
        name: (
            np.arange(1, len(values) + 1) if steps is None else np.asarray(steps),
            np.asarray(values, "float64"),
        )
        for name, values in series.items()
    }
    draw_runs(axes, curves)
    lines = list(axes.lines)
    if best:
        axes.axvline(best, color="#57606a", linestyle="dashed", linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if in_percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("epoch" if steps is None else "step")
    plain_axes(axes)
    if len(lines) > 1:
        legend_below(figure, lines, list(series))
    return figure


def _query(query: dict[str, Any]) -> dict[str, Any]:
    """Return a query of `neighbors.json`, also of one with the names of old runs."""
    return _image(query) | {"neighbors": [_image(n) for n in query["neighbors"]]}


def _image(item: dict[str, Any]) -> dict[str, Any]:
    old_names = {"picture": "image", "right": "positive"}
    return {old_names.get(name, name): value for name, value in item.items()}


def _images(results: dict[str, Any]) -> Section:
    rows = [
        [split, f"{count:,}", str(results["classes"][split] or "none")]
        for split, count in results["images"].items()
    ]
    skipped = len(results.get("skipped_files", ()))
    note = f"Skipped {skipped} unreadable files." if skipped else ""
    return Section("Images", note, [Table(["", "images", "classes"], rows)])


def _recipe(recipe: dict[str, Any]) -> dict[str, list[tuple[str, bool]]]:
    """Return the lines of each table, and whether each differs from its default."""
    defaults = {
        table.name: _defaults(table.type) for table in dataclasses.fields(Recipe)
    }
    return {
        name: [
            (
                f"{key} = {json.dumps(value)}",
                value not in (defaults.get(name, {}).get(key), {}),
            )
            for key, value in table.items()
        ]
        for name, table in with_current_names(recipe).items()
        if name != "published"  # which has a section of its own
    }


def _defaults(table: Any) -> dict[str, Any]:
    fields = dataclasses.fields(table)
    known = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    return json.loads(json.dumps(known))
