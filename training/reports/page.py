"""Write a report as one HTML page that needs no other file.

The pages are the Jinja templates beside this file, which escape every value.
"""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .text import paper_text


@dataclass(frozen=True)
class Table:
    """A table: the first column is text, the others are numbers.

    A table that is wider than the page scrolls by itself.

    Args:
        head: Title of each column; none: no head, and all columns are text.
        rows: Cells.
        main: First cell of the row to emphasize.
    """

    head: Sequence[str]
    rows: Iterable[Sequence[str]]
    main: str | None = None


@dataclass(frozen=True)
class Figure:
    """A figure.

    Args:
        title: What it shows.
        note: How to read it, one or two sentences; may be empty.
        drawing: A `matplotlib.figure.Figure`.
    """

    title: str
    note: str
    drawing: Any


@dataclass(frozen=True)
class Section:
    """A section of a page: a title, a note, tables, figures.

    Args:
        title: Title.
        note: A sentence or two below it; may be empty.
        tables: Tables.
        figures: Figures, drawn one after the other as the page is written.
    """

    title: str
    note: str = ""
    tables: Sequence[Table] = ()
    figures: Iterable[Figure] = ()


def environment_section(values: Mapping[str, str]) -> Section | None:
    """Return the section on what a result was computed with; None where unknown."""
    rows = [[key.replace("_", " "), value] for key, value in values.items()]
    return Section("Environment", tables=[Table([], rows)]) if rows else None


def paper_section(results: Mapping[str, Any]) -> Section | None:
    """Return the section with a paper's table; None where none was asked for."""
    table = results.get("table")
    if table is None:
        return None
    cells = [paper_text(title, value) for title, value in table["columns"].items()]
    return Section(
        "Columns of a paper's table",
        f"{table['source']}, shares in percent. {table['note']}".strip(),
        [Table(["", *table["columns"]], [["test", *cells]])],
    )


def write_page(
    path: Path, title: str, lead: str, template: str = "page.html", **values: Any
) -> None:
    """Write a page.

    Args:
        path: The file.
        title: Title of the page.
        lead: A sentence below the title.
        template: Name of the template.
        values: What else the template shows; `page.html` shows `sections`.

    Raises:
        OSError: The file cannot be written.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"png": _png, "pixels": _pixels}
    page = environment.get_template(template).render(title=title, lead=lead, **values)
    path.write_text(page, encoding="utf-8")


def _png(drawing: Any) -> str:
    file = io.BytesIO()
    drawing.savefig(file, format="png", dpi=160)
    return base64.b64encode(file.getvalue()).decode("ascii")


def _pixels(drawing: Any) -> int:
    return round(drawing.get_figwidth() * 100)
