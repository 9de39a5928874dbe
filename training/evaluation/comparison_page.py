"""Write a comparison of runs, as text and as an HTML page with curves."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfdml.messages import shown
from tfdml.metrics import Difference

from ..measure.query_files import read_queries, read_roc
from ..reports.page import Figure, Section, Table, write_page
from ..reports.text import metric_text, metric_title
from .compare import Comparison, results_folder
from .figures import convergence, curves

_NOTE = (
    "Differences are to the first model, with 95 % intervals by resampling classes "
    "and, with several seeds, runs. n.s.: not significant, the interval contains 0. "
    "Each interval is for one difference: of twenty equal models, one would seem to "
    "differ."
)


_TITLE = "<title>Comparison</title>"


def comparison_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells of the table, all text."""
    head = ["model", "seeds", *map(metric_title, comparison.metrics)]
    rows = []
    for model in comparison.models:
        cells = [model.name, str(len(model.folders))]
        for name in comparison.metrics:
            cells.append(_mean(name, model.means[name]))
        rows.append(cells)
        if model.differences:
            cells = ["  difference", ""]
            for name in comparison.metrics:
                cells.append(difference_text(name, model.differences[name]))
            rows.append(cells)
    return head, rows


def comparison_text(comparison: Comparison) -> str:
    """Return the table for a terminal."""
    head, rows = comparison_rows(comparison)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *rows]
    ]
    of = f"{comparison.queries:,} queries of {comparison.classes:,} classes. "
    return "\n".join([*lines, "", of + _NOTE])


def check_page_free(path: Path) -> None:
    """Make sure that a comparison may be written to a file.

    Raises:
        FileExistsError: The path is a folder, or a file that is not a comparison.
    """
    if not path.exists():
        return
    if path.is_dir() or _TITLE not in path.read_text("utf-8", errors="replace")[:4000]:
        raise FileExistsError(
            f"{shown(str(path))} is not a comparison, and is not replaced. Choose "
            "another file with --out."
        )


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the table, and the curves of all runs on common axes, to an HTML file.

    Args:
        comparison: What to show.
        path: The file. An existing comparison is replaced.

    Raises:
        FileExistsError: The path is something else.
        OSError: The file cannot be written.
    """
    check_page_free(path)
    head, rows = comparison_rows(comparison)
    of = f"{comparison.queries:,} queries of {comparison.classes:,} classes."
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(
        path,
        "Comparison",
        of,
        sections=[
            Section("Metrics", _NOTE, [Table(head, rows)]),
            Section(
                "Curves",
                "Of several seeds, the first run.",
                figures=_figures(comparison),
            ),
        ],
    )


def _mean(name: str, means: np.ndarray) -> str:
    if len(means) == 1:
        return metric_text(name, float(means[0]))
    spread = metric_text(name, float(means.std(ddof=1)))
    return f"{metric_text(name, float(means.mean()))} \u00b1 {spread}"


def difference_text(name: str, found: Difference) -> str:
    """Write a difference with its interval, and whether it is significant."""
    is_share = metric_text(name, 0.0).endswith("%")
    scale, digits = (100, 1) if is_share else (1, 3)
    values = [scale * v for v in (found.difference, found.low, found.high)]
    # Digits enough that what is not 0 does not look like it.
    smallest = min((abs(v) for v in values if v), default=1.0)
    digits = max(digits, min(6, math.ceil(-math.log10(smallest))))
    difference, low, high = (f"{round(v, digits) + 0.0:+.{digits}f}" for v in values)
    text = f"{difference} [{low}, {high}]"
    return text if found.is_significant else f"{text} n.s."


def _figures(comparison: Comparison) -> Iterator[Figure]:
    folders = {model.name: model.folders[0] for model in comparison.models}
    measured = {name: results_folder(folder) for name, folder in folders.items()}
    yield from curves(
        {name: read_queries(folder).results for name, folder in measured.items()},
        {name: read_roc(folder) for name, folder in measured.items()},
    )
    yield from convergence(folders)
