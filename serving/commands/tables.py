"""Print results: aligned tables no wider than the terminal, or one JSON document.

rich, which Keras installs, was tried in place of `table` and `details`: it cuts the end
of a long text, where paths differ most, lets it crowd out the other columns, and drops
control characters of a file name instead of showing them.
"""

import argparse
import json
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfdml.progress import Progress

_GAP = "  "
_LEAST = 8  # characters that remain of a text in the narrowest terminal


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str | int | float | None]],
    *,
    width: int | None = None,
) -> str:
    """Lay out rows in columns.

    Numbers are aligned right, texts left. If the columns together are too wide, the
    longest texts are shortened in the middle.

    Args:
        headers: The name of each column.
        rows: The cells of each row; None is empty. A float has four decimals, a whole
            number has commas.
        width: Characters per line; by default those of the terminal, 80 without one.

    Returns:
        A line of headers, a line of dashes and a line per row, without a final line
        break.
    """
    width = shutil.get_terminal_size((80, 24)).columns if width is None else width
    cells = list(rows)
    is_text = [
        any(isinstance(row[column], str | bool) for row in cells)
        for column in range(len(headers))
    ]
    lines = [list(headers), *([_text(cell) for cell in row] for row in cells)]
    widths = [max(map(_columns, column)) for column in zip(*lines, strict=True)]
    least = [
        min(_LEAST, each) if text else each
        for each, text in zip(widths, is_text, strict=True)
    ]
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while over > 0 and widths != least:
        column = max(
            range(len(widths)), key=lambda c: (widths[c] > least[c], widths[c])
        )
        widths[column] -= 1
        over -= 1
    lines.insert(1, ["-" * each for each in widths])
    return "\n".join(
        _GAP.join(
            _padded(shorten(cell, each), each, on_the_right=not text)
            for cell, each, text in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    )


def details(
    values: Mapping[str, str | int | float | None], *, width: int | None = None
) -> str:
    """Lay out named values, one per line; None is skipped.

    Args:
        values: Value by name.
        width: As in `table`.
    """
    width = shutil.get_terminal_size((80, 24)).columns if width is None else width
    shown = {name: _text(v) for name, v in values.items() if v is not None}
    first = max(map(_columns, shown), default=0)
    room = max(_LEAST, width - first - len(_GAP))
    return "\n".join(
        f"{_padded(name, first)}{_GAP}{shorten(text, room)}"
        for name, text in shown.items()
    )


def shorten(text: str, width: int) -> str:
    """Cut out the middle of a text that is wider than `width` columns.

    More of the end remains than of the beginning: it says more of a path.
    """
    if _columns(text) <= width:
        return text
    dots = "..."[: max(0, width)]
    room = width - len(dots)
    beginning = _first(text, room // 3)
    end = _first(text[::-1], room - _columns(beginning))[::-1]
    return beginning + dots + end


def printable(text: str) -> str:
    """Escape unprintable characters: a file name may contain terminal commands."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def print_text(text: str) -> None:
    """Print text, with escapes for characters that the terminal cannot show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def print_json(document: Any) -> None:
    """Print one JSON document, in ASCII, and nothing else."""
    print(json.dumps(document, indent=1))


def progress_of(parsed: argparse.Namespace, total: int, what: str) -> Progress:
    """Return the progress of `total` images; `--json` shows none."""
    return Progress(what, total, shown=not parsed.json)


def _text(cell: str | int | float | None) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.4f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return printable(cell)


def _columns(text: str) -> int:
    """Count the columns in a terminal: two for a Chinese character."""
    return sum(map(_columns_of, text))


def _columns_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _first(text: str, width: int) -> str:
    """Return at most the first `width` columns of a text."""
    used = 0
    for place, letter in enumerate(text):
        used += _columns_of(letter)
        if used > width:
            return text[:place]
    return text


def _padded(text: str, width: int, *, on_the_right: bool = False) -> str:
    spaces = " " * (width - _columns(text))
    return spaces + text if on_the_right else text + spaces
