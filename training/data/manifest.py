"""Read, write and check manifests: data sets as CSV files.

docs/data-sets.md describes the columns.
"""

import csv
import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tfdml.command_parser import command
from tfdml.files import short_names, written
from tfdml.images import UnreadableImageError, read_image
from tfdml.messages import LONGEST, cut, shown
from tfdml.progress import tracked
from tfdml.text_files import TextError, decode, read_text, records_of

from .data_set import SPLITS, DataSet
from .label_array import (
    label_row_problems,
    read_label_array,
    write_label_array,
)
from .rules import (
    BOX,
    CONTINUOUS,
    LABEL_ROW,
    Problem,
    Row,
    box_problems,
    column_problems,
    is_below,
    row_problems,
)

_LONGEST = 250  # characters of a problem


class ManifestError(ValueError):
    """A manifest has problems.

    Args:
        path: The manifest.
        problems: All of them, in the order of their lines.
    """

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = problems
        file, check = cut(path), command("training", "check")
        lines = [cut(f"{file}:{p.line}: {p.text}", _LONGEST) for p in problems[:10]]
        for count in range(len(lines), 0, -1):
            rest = len(problems) - count
            more = f"and {rest} more; `{check} {file}` lists all."
            message = "\n".join([*lines[:count], *([more] if rest else [])])
            if len(message) <= LONGEST:
                break
        super().__init__(message)


@short_names()
def read_manifest(
    path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None
) -> DataSet:
    """Read a manifest, and report every problem except those inside the images.

    Without a column `split` every image is in the training split; `states_splits` tells
    whether there is one.

    Args:
        path: The CSV file.
        root: Folder that the paths are below; by default the folder of the manifest.

    Raises:
        ManifestError: It has problems; `problems` lists all of them.
        FileNotFoundError: There is no such file.
    """
    path, root = _places(path, root)
    columns, rows, problems = _parse(path, root)
    problems += _missing_files(rows, root)
    if problems:
        raise ManifestError(path, sorted(problems))
    return _data_set(columns, rows, path, root)


def states_splits(path: str | os.PathLike[str]) -> bool:
    """Return whether a manifest has the column `split`.

    Raises:
        ValueError: It is no text, or no table.
        OSError: It cannot be read.
    """
    _, columns = next(records_of(read_text(path)), (1, []))
    return "split" in columns


def check_manifest(
    path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None
) -> list[Problem]:
    """Find every problem of a manifest, also by decoding every image.

    Args:
        path: The CSV file.
        root: Folder that the paths are below; by default the folder of the manifest.

    Returns:
        The problems in the order of their lines; none if all is well.

    Raises:
        FileNotFoundError: There is no such file.
    """
    path, root = _places(path, root)
    _, rows, problems = _parse(path, root)
    missing = _missing_files(rows, root)
    problems += missing
    absent = {problem.line for problem in missing}
    by_file: dict[Path, list[Row]] = {}
    for row in rows:
        file = _file(row, root)
        if file is not None and row.line not in absent:
            by_file.setdefault(file, []).append(row)
    with ThreadPoolExecutor() as pool:
        sizes = pool.map(_size_or_error, by_file)
        for (_, sharing), size in zip(
            by_file.items(),
            tracked(sizes, "checking", len(by_file)),
            strict=True,
        ):
            for row in sharing:
                if isinstance(size, str):
                    problems.append(Problem(row.line, size))
                else:
                    problems += _box_outside(row, *size)
    return sorted(problems)


def write_manifest(
    data_set: DataSet,
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
) -> None:
    """Write a data set of files as a manifest; it appears whole.

    Labels of more than one axis an image, such as maps, and vectors of whole numbers go
    to an array beside it, `NAME.labels.npy` for `NAME.csv`. Then the manifest of before
    is taken away first: a write that is stopped leaves none.

    Args:
        data_set: Its images are paths below `root`.
        path: The CSV file.
        root: By default the folder of the manifest.

    Raises:
        ValueError: The images are an array, or one is not below `root`.
    """
    path, root = _places(path, root)
    if isinstance(data_set.images, np.ndarray):
        raise ValueError("A manifest names files; these images are an array in memory.")
    table: dict[str, list[object]] = {
        "path": [image.relative_to(root).as_posix() for image in data_set.images]
    }
    has_label_array = data_set.is_continuous and not (
        data_set.labels.ndim == 2 and data_set.labels.dtype.kind == "f"
    )
    if has_label_array:
        table[LABEL_ROW] = list(range(len(data_set)))
    elif data_set.is_continuous:
        for i, column in enumerate(data_set.labels.T):
            # The shortest text that reads back as the same number.
            table[f"label_{i}"] = [str(value) for value in column]
    else:
        table["label"] = [data_set.class_names[label] for label in data_set.labels]
    table["split"] = list(data_set.splits)
    for name, values in (
        ("role", data_set.roles),
        ("category", data_set.categories),
        ("sequence", data_set.sequences),
    ):
        if values is not None:
            table[name] = list(values)
    if data_set.boxes is not None:
        whole = data_set.boxes[:, 2] == 0
        for name, values in zip(BOX, data_set.boxes.T, strict=True):
            table[name] = [
                "" if is_whole else int(value)
                for value, is_whole in zip(values, whole, strict=True)
            ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    with written(path) as new:
        new.write_text(text.getvalue(), encoding="utf-8", newline="")
        if has_label_array:
            write_label_array(data_set.labels, path)


def _places(
    path: str | os.PathLike[str], root: str | os.PathLike[str] | None
) -> tuple[Path, Path]:
    path = Path(path)
    return path, path.parent if root is None else Path(root)


def _parse(path: Path, root: Path) -> tuple[list[str], list[Row], list[Problem]]:
    """Return the columns, the rows with as many cells, the problems."""
    text, errors = decode(path.read_bytes())
    problems = [Problem(error.line, error.text) for error in errors]
    records = _records(text, problems)
    line, columns = next(records, (1, []))
    problems += [Problem(line, text) for text in column_problems(columns)]
    rows = []
    for line, cells in records:
        if len(cells) != len(columns):
            problems.append(
                Problem(line, f"{len(cells)} cells in {len(columns)} columns")
            )
            continue
        rows.append(Row(line, dict(zip(columns, cells, strict=True))))
    if not rows:
        problems.append(Problem(line, "there is no image"))
    problems += row_problems(rows, root)
    if columns.count(LABEL_ROW) == 1:
        problems += label_row_problems(rows, path)
    return columns, rows, problems


def _records(text: str, problems: list[Problem]) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the line that it begins in, up to a problem."""
    try:
        yield from records_of(text)
    except TextError as error:
        problems.append(Problem(error.line, error.text))


def _file(row: Row, root: Path) -> Path | None:
    """Return the file of a row, or None where its path is a problem already."""
    path = row.cells.get("path", "").strip()
    if not path or not is_below(path):
        return None
    file = root / path
    return None if "\\" in path and not file.exists() else file


def _missing_files(rows: list[Row], root: Path) -> list[Problem]:
    problems = []
    for row in rows:
        file = _file(row, root)
        if file is not None and not file.is_file():
            problems.append(Problem(row.line, f"there is no file {shown(str(file))}"))
    return problems


def _size_or_error(file: Path) -> tuple[int, int] | str:
    try:
        height, width = read_image(file, max_pixels=None).shape[:2]
    except UnreadableImageError as error:
        return str(error)
    return width, height


def _box_outside(row: Row, width: int, height: int) -> Iterator[Problem]:
    values = [row.cells.get(name, "").strip() for name in BOX]
    if all(values) and not any(box_problems(row.cells)):
        x, y, box_width, box_height = map(int, values)
        if x + box_width > width or y + box_height > height:
            yield Problem(
                row.line,
                f"the box reaches beyond the image of {width} x {height} pixels. "
                f"Received: {shown(values)}",
            )


def _data_set(columns: list[str], rows: list[Row], path: Path, root: Path) -> DataSet:
    def column(name: str) -> np.ndarray | None:
        return np.array([r.cells[name] for r in rows]) if name in columns else None

    class_names: tuple[str, ...] = ()
    names = column("label")
    if LABEL_ROW in columns:
        places = [int(row.cells[LABEL_ROW]) for row in rows]
        labels = np.array(read_label_array(path)[places])
    elif names is None:
        wanted = sorted(
            (c for c in columns if CONTINUOUS.fullmatch(c)), key=lambda c: int(c[6:])
        )
        values = [[float(row.cells[name]) for name in wanted] for row in rows]
        labels = np.array(values, dtype="float64")
    else:
        unique, inverse = np.unique(names, return_inverse=True)
        class_names, labels = tuple(unique.tolist()), inverse.astype("int64")
    boxes = None
    if "x" in columns:
        sides = [[int(row.cells[name] or 0) for name in BOX] for row in rows]
        boxes = np.array(sides, dtype="int64")
    return DataSet(
        images=tuple(root / row.cells["path"] for row in rows),
        labels=labels,
        splits=np.array([row.cells.get("split", SPLITS[0]) for row in rows]),
        class_names=class_names,
        roles=column("role"),
        categories=column("category"),
        sequences=column("sequence"),
        boxes=boxes,
    )
