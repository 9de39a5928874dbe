"""Check the lines of a manifest without opening an image."""

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfdml.messages import cut, shown

from .data_set import ROLES, SPLITS

BOX = ("x", "y", "width", "height")
CONTINUOUS = re.compile(r"label_([0-9]+)")
"""Name of a column of continuous labels."""
LABEL_ROW = "label_row"
"""Name of the column that says where a label is in the array beside the manifest."""
_COLUMNS = ("path", "label", LABEL_ROW, "split", "role", "category", "sequence", *BOX)

_MOST_LISTED = 200


@dataclass(frozen=True, order=True)
class Problem:
    """What is wrong, and in which line of the file; line 1 holds the column names."""

    line: int
    text: str


@dataclass(frozen=True)
class Row:
    """The cells of a line by the names of their columns."""

    line: int
    cells: dict[str, str]


def column_problems(columns: list[str]) -> Iterator[str]:
    """Yield what is wrong with the names of the columns."""
    for name in sorted({name for name in columns if columns.count(name) > 1}):
        yield f"column {shown(name)} occurs {columns.count(name)} times"
    if "path" not in columns:
        yield f"column 'path' is missing; there are {_listed(columns)}"
    numbers = [int(m[1]) for name in columns if (m := CONTINUOUS.fullmatch(name))]
    kinds = {
        "'label' (classes)": "label" in columns,
        "'label_0' (continuous)": bool(numbers),
        f"{LABEL_ROW!r} (rows of an array)": LABEL_ROW in columns,
    }
    there = [kind for kind, is_there in kinds.items() if is_there]
    if len(there) > 1:
        yield f"column {' beside '.join(there)}: keep one kind"
    if not there:
        yield (
            "column 'label' (or 'label_0', 'label_1', ..., or 'label_row') is missing; "
            f"there are {_listed(columns)}"
        )
    if sorted(set(numbers)) != list(range(len(set(numbers)))):
        yield "columns 'label_0', 'label_1', ... must be numbered without a gap"
    box = [name for name in BOX if name in columns]
    if box and len(box) < len(BOX):
        yield f"a box needs the columns {', '.join(BOX)}; there are {', '.join(box)}"
    for name in columns:
        if name in _COLUMNS or CONTINUOUS.fullmatch(name):
            continue
        near = difflib.get_close_matches(name[:40].strip().lower(), _COLUMNS, 1, 0.75)
        if near:
            yield f"unknown column {shown(name)}: did you mean {near[0]!r}?"


def _listed(columns: list[str]) -> str:
    return cut(", ".join(map(shown, columns)) or "none", _MOST_LISTED)


def row_problems(rows: list[Row], root: Path) -> Iterator[Problem]:
    """Yield what is wrong with the rows, each by itself and all together."""
    for row in rows:
        yield from (Problem(row.line, text) for text in _cell_problems(row, root))
    yield from _repeated_images(rows)
    yield from _classes_in_two_splits(rows)


def _cell_problems(row: Row, root: Path) -> Iterator[str]:
    cells = row.cells
    for name, value in cells.items():
        is_known = name in _COLUMNS or CONTINUOUS.fullmatch(name)
        if is_known and value != value.strip():
            yield f"{name} {shown(value)} begins or ends with a space"
    path = cells.get("path", "").strip()
    if "path" in cells:
        if not path:
            yield "the path is empty"
        elif "\\" in path and not (root / path).exists():
            yield f"path {shown(path)}: folders are separated by /, not by \\"
        elif not is_below(path):
            yield f"path {shown(path)} must be below the folder {shown(str(root))}"
    if "label" in cells and not cells["label"].strip():
        yield "the label is empty"
    for name, value in cells.items():
        if CONTINUOUS.fullmatch(name) and not _is_number(value):
            yield f"{name} must be a finite number. Received: {shown(value)}"
    for name, known in (("split", SPLITS), ("role", ROLES)):
        value = cells.get(name, known[0]).strip()
        if value not in known:
            allowed = ", ".join(part or "empty" for part in known)
            yield f"{name} must be one of {allowed}. Received: {shown(value)}"
    yield from box_problems(cells)


def box_problems(cells: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the box of a row, whatever the size of the image."""
    if not all(name in cells for name in BOX):
        return
    values = [cells[name].strip() for name in BOX]
    if not any(values):
        return
    if not all(re.fullmatch(r"-?[0-9]{1,9}", value) for value in values):
        yield f"the box must be 4 whole numbers, or empty. Received: {shown(values)}"
    elif int(values[2]) < 1 or int(values[3]) < 1:
        yield (
            f"the box must be at least 1 pixel wide and high. Received: {shown(values)}"
        )
    elif int(values[0]) < 0 or int(values[1]) < 0:
        yield f"the box must begin inside the image. Received: {shown(values)}"


def is_below(path: str) -> bool:
    """Return whether the path stays inside its folder."""
    pure = PurePosixPath(path)
    is_windows_drive = re.match(r"[A-Za-z]:[\\/]", path) is not None
    return not (pure.is_absolute() or ".." in pure.parts or is_windows_drive)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _repeated_images(rows: list[Row]) -> Iterator[Problem]:
    """Yield rows that repeat an image; two boxes of one file are two images."""
    first: dict[tuple[str, ...], int] = {}
    for row in rows:
        path = row.cells.get("path", "").strip()
        key = (
            PurePosixPath(path).as_posix(),
            *(row.cells.get(name, "").strip() for name in BOX),
        )
        if path and (line := first.setdefault(key, row.line)) != row.line:
            yield Problem(row.line, f"image {shown(path)} is already in line {line}")


def _classes_in_two_splits(rows: list[Row]) -> Iterator[Problem]:
    places: dict[str, dict[str, int]] = {}
    for row in rows:
        label, split = (row.cells.get(n, "").strip() for n in ("label", "split"))
        if label and split in SPLITS:
            places.setdefault(label, {}).setdefault(split, row.line)
    for label, lines in places.items():
        if len(lines) > 1:
            where = ", ".join(f"{split} (line {line})" for split, line in lines.items())
            last = max(lines.values())
            yield Problem(
                last, f"class {shown(label)} is in more than one split: {where}"
            )
