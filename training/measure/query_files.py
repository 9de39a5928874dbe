"""Write and read the results of queries and pairs: `queries.npz`, `roc.npz`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tfdml.command_parser import command
from tfdml.messages import shortened, shown
from tfdml.metrics import PairCounts, QueryResults, RankingCurve, roc_curve

from ..data.data_set import DataSet
from ..data.split import Split

_FILE = "queries.npz"
_ROC = "roc.npz"
_DAMAGED = (OSError, KeyError, ValueError, EOFError, BadZipFile)


@dataclass(frozen=True)
class NamedResults:
    """Results with the name of each query, by which those of two runs are paired."""

    names: np.ndarray
    results: QueryResults
    searched: str
    """SHA-256 of the gallery: its names, labels and sequences."""


def write_queries(
    folder: Path, results: QueryResults, split: Split, names: Sequence[str]
) -> None:
    """Write `queries.npz` to a folder.

    Args:
        folder: A run folder or that of an evaluation.
        results: The metrics of each query.
        split: The images.
        names: Path of each image; a box that is cut out of it is added to its name.
    """
    every = np.array(_with_boxes(split.data, names))
    arrays: dict[str, Any] = {
        "names": every[results.queries],
        "searched": _digest(split.data, every),
        "queries": results.queries,
        "classes": results.classes,
        "without_positive": results.without_positive,
        "classes_without_positive": results.classes_without_positive,
    }
    arrays |= {f"value/{name}": values for name, values in results.values.items()}
    if results.first_ranks is not None:
        arrays["first_ranks"] = results.first_ranks
    if results.curve is not None:
        arrays |= {f"curve/{name}": v for name, v in vars(results.curve).items()}
    with (folder / _FILE).open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_queries(folder: Path) -> NamedResults:
    """Read what `write_queries` wrote.

    Raises:
        ValueError: The folder has no such file, or a damaged one.
    """
    path = folder / _FILE
    if not path.is_file():
        raise ValueError(
            f"{shown(str(folder))} holds no results of single queries (no {_FILE}). "
            f"Write them with `{command('training', 'evaluate')}`."
        )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            curve = [arrays[k] for k in arrays if k.startswith("curve/")]
            return NamedResults(
                arrays["names"],
                QueryResults(
                    queries=arrays["queries"],
                    classes=arrays["classes"],
                    values={
                        k.removeprefix("value/"): arrays[k]
                        for k in arrays
                        if k.startswith("value/")
                    },
                    first_ranks=arrays.get("first_ranks"),
                    curve=RankingCurve(*curve) if curve else None,
                    without_positive=arrays["without_positive"],
                    classes_without_positive=arrays["classes_without_positive"],
                ),
                str(arrays["searched"]),
            )
    except (*_DAMAGED, TypeError) as error:
        raise ValueError(
            f"{shown(str(path))} is damaged: {shortened(error)}."
        ) from error


def _with_boxes(data: DataSet, names: Sequence[str]) -> list[str]:
    if data.boxes is None:
        return list(names)
    return [
        f"{name}#{','.join(map(str, box))}" if box[2] else name
        for name, box in zip(names, data.boxes.tolist(), strict=True)
    ]


def _digest(data: DataSet, names: np.ndarray) -> str:
    """Return a digest of the gallery that does not depend on its order."""
    order = np.argsort(names)
    order = order[data.is_gallery()[order]]
    digest = hashlib.sha256()
    labels = data.labels
    if not data.is_continuous:
        labels = np.array(data.class_names)[labels]
    for values in (names, labels, data.sequences):
        if values is not None:
            digest.update(np.ascontiguousarray(values[order]).tobytes())
    return digest.hexdigest()


def write_roc(folder: Path, counts: PairCounts) -> None:
    """Write the ROC curve of all pairs, `roc.npz`, to a folder."""
    false, true, thresholds = roc_curve(counts)
    with (folder / _ROC).open("wb") as file:
        np.savez_compressed(file, false=false, true=true, thresholds=thresholds)


def read_roc(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return false and true accept rates, or None if they were not measured.

    Raises:
        ValueError: The file is damaged.
    """
    path = folder / _ROC
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays["false"], arrays["true"]
    except _DAMAGED as error:
        raise ValueError(
            f"{shown(str(path))} is damaged: {shortened(error)}."
        ) from error
