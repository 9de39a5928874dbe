"""Read and write labels that do not fit into CSV cells, as an array beside it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfdml.files import sync, written
from tfdml.messages import cut, shortened, shown

from .rules import LABEL_ROW, Problem, Row


def labels_path(manifest: Path) -> Path:
    """Return where the array of a manifest lies: `manifest.labels.npy`."""
    return manifest.with_suffix(".labels.npy")


def read_label_array(manifest: Path) -> np.ndarray:
    """Open the labels, numbers `[rows, ...]`; they are read when they are used.

    Raises:
        ValueError: The file is not there or holds something else.
    """
    path = labels_path(manifest)
    try:
        labels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"{LABEL_ROW} needs the labels in {shown(str(path))}: {shortened(error)}."
        ) from error
    if not isinstance(labels, np.ndarray) or labels.ndim < 2:
        raise ValueError(f"{cut(path)} must be an array of labels, [rows, ...].")
    if labels.dtype.kind not in "fiu":
        raise ValueError(f"{cut(path)} must hold numbers. Received: {labels.dtype}.")
    return labels


def write_label_array(labels: np.ndarray, manifest: Path) -> None:
    """Write the labels, and take away the manifest of the old ones just before."""
    with written(labels_path(manifest)) as new:
        with new.open("wb") as file:
            np.save(file, labels, allow_pickle=False)
        sync(new)
        # An old manifest must never stand beside new labels.
        manifest.unlink(missing_ok=True)


def label_row_problems(rows: list[Row], manifest: Path) -> Iterator[Problem]:
    """Yield what is wrong with the array, and which lines name no row of it."""
    try:
        labels = read_label_array(manifest)
    except ValueError as error:
        yield Problem(1, str(error))
        return
    for row in rows:
        cell = row.cells[LABEL_ROW].strip()
        name = labels_path(manifest).name
        if not (cell.isascii() and cell.isdigit() and int(cell) < len(labels)):
            yield Problem(
                row.line,
                f"{LABEL_ROW} must be a row of {name}, 0 to {len(labels) - 1}. "
                f"Received: {shown(cell)}",
            )
        elif not np.isfinite(labels[int(cell)]).all():
            yield Problem(row.line, f"row {cut(cell)} of {name} must be finite numbers")
