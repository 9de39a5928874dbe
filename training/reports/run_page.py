"""The report of a run, one HTML file that needs nothing else."""

import dataclasses
import json
from html import escape
from pathlib import Path
from typing import Any

from training.json_files import read_json
from training.recipe.recipe import Recipe
from training.reports.charts import line_chart
from training.reports.html_page import environment_table, html_page, html_table
from training.reports.text import is_further, measured_rows, metric_text, metric_title


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
    sheet = (
        read_json(run / "neighbors.json") if (run / "neighbors.json").exists() else []
    )
    name = run.name.removesuffix(".unfinished")
    parts = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="lead">{escape(_lead(results, recipe, history))}</p>',
        _test_table(results),
        _curves(history, results.get("best_epoch", 0)),
        _sheet(sheet, results.get("searches_of", "test")),
        _data_table(results),
        _recipe(recipe),
        environment_table(results.get("environment", {})),
    ]
    path = run / "report.html"
    path.write_text(html_page(name, parts), encoding="utf-8")
    return path


def _lead(
    results: dict[str, Any], recipe: dict[str, Any], history: dict[str, Any]
) -> str:
    epochs = len(history.get("loss", ()))
    minutes, seconds = divmod(round(results["seconds_of_training"]), 60)
    best = results.get("best_epoch")
    return (
        f"{recipe['loss']['name']}, {recipe['embedder']['backbone']} network, "
        f"{epochs} epochs in {minutes} min {seconds} s on {results['backend']}"
        + (
            f"; the weights of epoch {best} are kept, the best on validation"
            * bool(best)
        )
        + "."
    )


def _test_table(results: dict[str, Any]) -> str:
    names, rows = measured_rows(results)
    if not names:
        return "<h2>Test</h2><p>No test images with anything to find.</p>"
    table = html_table(
        ["", *map(metric_title, names)],
        (
            [title, *(metric_text(name, values[name]) for name in names)]
            for title, values in rows.items()
        ),
        main="after training",
    )
    return f"<h2>Test images, never seen in training</h2>{table}"


def _curves(history: dict[str, list[float]], best: int) -> str:
    if not history:
        return ""
    shares: dict[str, list[float]] = {}
    others: dict[str, list[float]] = {}
    for name, values in history.items():
        if is_further(name) or name in ("val_recall_at_1", "triplets"):
            continue  # the first is Precision@1
        if name.startswith("val_"):
            title = metric_title(name.removeprefix("val_"))
            is_share = metric_text(name, 0.0).endswith("%")
            (shares if is_share else others)[title] = values
    charts = [("Loss", {"loss": history["loss"]}, False)]
    if shares:
        charts.append(("Validation", shares, True))
    charts += [
        (f"Validation: {title}", {title: v}, False) for title, v in others.items()
    ]
    charts += [
        (metric_title(name).capitalize(), {metric_title(name): values}, False)
        for name, values in history.items()
        if name not in ("loss", "triplets") and not name.startswith("val_")
    ]
    figures = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f"{line_chart(series, percent=percent, marked=best)}</figure>"
        for title, series, percent in charts
    )
    note = f"<p>The dashed line marks epoch {best}, whose weights are kept.</p>" * bool(
        best
    )
    return f'<h2>Curves</h2>{note}<div class="charts">{figures}</div>'


def _sheet(sheet: list[dict[str, Any]], of: str) -> str:
    if not sheet:
        return ""
    groups = {
        "from all": "Queries drawn at random, each with its nearest neighbours",
        "from failures": "Queries drawn from those whose first neighbour is wrong",
    }
    name = {"test": "test", "validation": "validation", "train": "training"}[of]
    parts = [f"<h2>Searches among the {name} images</h2>"]
    for drawn, title in groups.items():
        rows = [query for query in sheet if query["drawn"] == drawn]
        if rows:
            parts.append(f"<p>{title}.</p>")
        for query in rows:
            cells = [
                _cell(query, "query", "query"),
                *map(_neighbor, query["neighbors"]),
            ]
            parts.append(f'<div class="sheet">{"".join(cells)}</div>')
    if any(n["right"] is not None for q in sheet for n in q["neighbors"]):
        parts.insert(
            1, "<p>A green frame has the class of the query, a red one not.</p>"
        )
    return "".join(parts)


def _neighbor(item: dict[str, Any]) -> str:
    kind = {True: "right", False: "wrong", None: ""}[item["right"]]
    word = f"{kind}, " if kind else ""
    return _cell(item, kind, f"{word}{item['similarity']:.2f}")


def _cell(item: dict[str, Any], kind: str, note: str) -> str:
    label = escape(item["class"] or item["name"])
    return (
        f'<div class="cell {kind}"><img alt="{label}" title="{escape(item["name"])}" '
        f'src="data:image/jpeg;base64,{item["picture"]}"><b>{note}</b> {label}</div>'
    )


def _data_table(results: dict[str, Any]) -> str:
    table = html_table(
        ["", "images", "classes"],
        (
            [split, f"{count:,}", str(results["classes"][split] or "none")]
            for split, count in results["images"].items()
        ),
    )
    skipped = len(results.get("skipped_files", ()))
    note = f"<p>{skipped} unreadable files were skipped.</p>" * bool(skipped)
    return f"<h2>Images</h2>{table}{note}"


def _recipe(recipe: dict[str, Any]) -> str:
    defaults = {
        table.name: _defaults(table.type) for table in dataclasses.fields(Recipe)
    }
    sections = []
    for name, table in recipe.items():
        lines = "".join(
            f"<div{_given(value, defaults.get(name, {}).get(key))}>"
            f"{escape(key)} = {escape(json.dumps(value))}</div>"
            for key, value in table.items()
        )
        sections.append(f"<section><h3>[{escape(name)}]</h3>{lines}</section>")
    return (
        "<h2>Recipe</h2><p>Bold: other than the default.</p>"
        f'<div class="recipe">{"".join(sections)}</div>'
    )


def _defaults(table: Any) -> dict[str, Any]:
    return json.loads(
        json.dumps(
            {
                f.name: f.default
                for f in dataclasses.fields(table)
                if f.default is not dataclasses.MISSING
            }
        )
    )


def _given(value: Any, default: Any) -> str:
    return ' class="given"' * (value != default and value != {})
