"""Set what a paper printed beside what was measured, and list the recipes of a file."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..recipe.published import Published
from ..recipe.variants import NOT_PRINTED, PrintedTable, RecipeFile
from .page import Section, Table
from .text import metric_title

_TITLES = {"nmi_geometric": "NMI", "nmi_arithmetic": "NMI"}
_TITLES |= {"pairwise_f1": "F1", "adjusted_rand": "adjusted Rand"}
_BEST_EPOCH = (
    "Published codes mostly take the epoch that is best on the test classes, which a "
    "run never does."
)


def published_title(metric: str) -> str:
    """Return how a metric of a published row is called in text."""
    name = metric.removeprefix("superclasses.").removeprefix("clustering.")
    title = _TITLES.get(name) or metric_title(name)
    return f"{title} of categories" if metric.startswith("superclasses.") else title


def tested(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a run in the form of those of an evaluation.

    Args:
        results: The contents of a run's `metrics.json`.
    """
    return {**results, "metrics": results["test_after_training"] or {}}


def published_text(published: Published, measured: Mapping[str, Any]) -> str:
    """Write published rows beside what was measured; empty without any.

    Args:
        published: What a paper printed.
        measured: The contents of an evaluation's `metrics.json`, or what `tested`
            returned.

    Returns:
        A table for each row, in percent, as exact as the paper printed it.
    """
    if not published.rows:
        return ""
    lines = [f"As published for {published.variant}, in percent: {published.paper}"]
    for name, row in published.rows.items():
        rows = [(name, "published", "here"), *_beside(row, measured)]
        first = max(len(title) for title, *_ in rows) + 2
        lines += [f"{title:<{first}}{was:>9}{here:>9}" for title, was, here in rows]
    return "\n".join(lines)


def published_section(
    published: Published, measured: Mapping[str, Any]
) -> Section | None:
    """Return published rows beside what was measured as a section of a page.

    Args:
        published: What a paper printed.
        measured: As for `published_text`.

    Returns:
        The section; None without published rows.
    """
    if not published.rows:
        return None
    tables = [
        Table([name, "published", "here"], _beside(row, measured))
        for name, row in published.rows.items()
    ]
    about = f"{published.paper} ({published.variant}), in percent. {_BEST_EPOCH}"
    return Section("As published", about, tables)


def listing(file: RecipeFile) -> str:
    """Write the variants of a file with what the paper printed of each.

    Args:
        file: The recipes.

    Returns:
        The paper, each of its tables in percent, and what cannot run, with the reason.
    """
    lines = [file.paper] if file.paper else []
    if not file.tables:
        lines.append(f"Choices, to be combined: {', '.join(file.choices)}")
    reasons = {name: file.missing(name) for name in file.variants}
    for table in file.tables:
        unit = "in percent" if table.columns else "without numbers"
        lines += ["", f"{table.name}, {unit}", *_aligned(table, reasons)]
    without: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason:
            without.setdefault(reason, []).append(name)
    if without:
        lines += ["", "* cannot run:"]
        lines += [f"{', '.join(names)}: {why}" for why, names in without.items()]
    return "\n".join(lines)


def _aligned(table: PrintedTable, reasons: Mapping[str, str]) -> Sequence[str]:
    titles = [published_title(column) for column in table.columns]
    first = max(len(name) for name in table.rows) + 3
    widths = [max(7, len(title) + 2) for title in titles]
    lines = [" " * first + "".join(map(str.rjust, titles, widths))] if titles else []
    digits = _digits(value for row in table.rows.values() for value in row.values())
    for name, row in table.rows.items():
        cells = [
            f"{row[column]:.{digits}f}" if column in row else NOT_PRINTED
            for column in table.columns
        ]
        marked = f"{name} *" if reasons[name] else name
        lines.append(f"{marked:<{first}}" + "".join(map(str.rjust, cells, widths)))
    return [line.rstrip() for line in lines]


def _beside(
    row: Mapping[str, float], measured: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Return title, published value and measured value of each metric."""
    digits = _digits(row.values())
    rows = []
    for metric, value in row.items():
        found = _measured(metric, measured)
        here = NOT_PRINTED if found is None else f"{100 * found:.{digits}f}"
        rows.append((published_title(metric), f"{value:.{digits}f}", here))
    return rows


def _digits(values: Iterable[float]) -> int:
    """Return how many digits after the point the paper printed."""
    return max((len(repr(value).partition(".")[2]) for value in values), default=0)


def _measured(metric: str, measured: Mapping[str, Any]) -> float | None:
    """Return a measured share; None where it was not measured."""
    *path, name = metric.split(".")
    found: Any = measured
    for key in path or ["metrics"]:
        found = found.get(key) or {}
    return found.get(name)
