"""Check whether a run folder may be written, or its run resumed."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfdml.messages import cut, shown

from ..data.data_set import DataSet
from ..json_files import read_json, write_json
from ..recipe.recipe import Recipe, with_current_names
from ..recipe.tables import Data

_WITHOUT_EFFECT = (
    ("images", "workers"),
    ("images", "cache_megabytes"),
    ("fit", "callbacks"),
)


def _has_no_effect(table: str, key: str) -> bool:
    """Return whether a run trains the same, whatever this key of its recipe says."""
    return table == "published" or (table, key) in _WITHOUT_EFFECT


STATE = "state.npz"
_BEFORE = "before.json"
_IMAGES = "images.json"
OTHER_ROWS = {"compatible": "old_rows.npy", "teacher": "teacher_rows.npy"}
"""Files with the embeddings of other models, by the table that names them."""

UNFINISHED = (
    STATE,
    _IMAGES,
    _BEFORE,
    *OTHER_ROWS.values(),
    "diverged_batch.txt",
    "last_good.keras",
)
"""Files that only a run has that is not in its place yet."""


def check_free(run: Path, overwrite: bool) -> None:
    """Raise unless a run may be written to a folder.

    Raises:
        FileExistsError: It holds a run and `overwrite` is False, or something else.
    """
    if run.exists() and not overwrite:
        raise FileExistsError(
            f"{cut(run)} already holds a run. Choose another folder with --run, or "
            "replace it with --overwrite."
        )
    if run.exists() and not (run / "metrics.json").is_file():
        raise FileExistsError(
            f"{cut(run)} does not hold a run (no metrics.json) and is not replaced. "
            "Choose another folder with --run."
        )


def drop_unbegun(folder: Path) -> None:
    """Remove an unfinished run that came no further than its recipe."""
    if {path.name for path in folder.iterdir()} <= {"recipe.json"}:
        shutil.rmtree(folder)


def kept(folder: Path, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a run that is taken up has measured already."""
    path = folder / _BEFORE
    # Without a state, the file may be of another recipe or half written.
    if not (path.exists() and (folder / STATE).exists()):
        write_json(path, measured())
    return read_json(path)


def check_same_recipe(folder: Path, recipe: Recipe) -> None:
    """Note the recipe of a new run; of an interrupted one, it must be the same."""
    tables = json.loads(json.dumps(dataclasses.asdict(recipe)))
    file = folder / "recipe.json"
    if not (folder / STATE).exists():
        write_json(file, tables)
        return
    before = with_current_names(read_json(file))
    # A key that is newer than the run had no other value than its default.
    defaults = dataclasses.asdict(Recipe(Data(recipe.data.images)))
    changes = []
    for table, values in tables.items():
        old = json.loads(json.dumps(defaults[table])) | before.get(table, {})
        changes += [
            f"{table}.{key} was {shown(old.get(key), 80)} and is {shown(value, 80)}"
            for key, value in values.items()
            if old.get(key) != value and not _has_no_effect(table, key)
        ]
    if changes:
        raise ValueError(
            f"{cut(folder)} holds an interrupted run of another recipe: {changes[0]}. "
            "Give that recipe to go on with it, another folder with --run, or "
            "--restart to discard it."
        )


def check_same_images(
    folder: Path,
    names: dict[str, list[str]],
    data: dict[str, DataSet],
    contents: dict[str, list[str]],
) -> None:
    """Note the images of a new run; of an interrupted one, they must be the same.

    Args:
        folder: The unfinished run.
        names: The path of each image, by split.
        data: The images, by split.
        contents: The digest of each image, by split.

    Raises:
        ValueError: An image is missing or new or shows something else, or they have
            another order, other labels, roles, sequences or boxes.
    """
    file = folder / _IMAGES
    digests = {split: _digest(images) for split, images in data.items()}
    if not (folder / STATE).exists():
        write_json(file, {"names": names, "digests": digests, "contents": contents})
        return
    noted = read_json(file)
    before = noted["names"]
    for split, now in names.items():
        for word, left in (
            ("is missing", set(before[split]) - set(now)),
            ("is new", set(now) - set(before[split])),
        ):
            if left:
                raise ValueError(
                    f"The images are not those that the run in {cut(folder)} began "
                    f"with: {cut(min(left))} {word} ({len(left)} in all, {split}). "
                    "Bring them back to go on, or start over with --restart."
                )
        if before[split] != now or noted["digests"][split] != digests[split]:
            raise ValueError(
                f"The images of the run in {cut(folder)} had another order, or other "
                f"labels, roles, sequences or boxes ({split}). Bring these back to go "
                "on, or start over with --restart."
            )
        if "contents" not in noted:
            continue  # a run of an earlier version
        pairs = zip(now, noted["contents"][split], contents[split], strict=True)
        if others := [name for name, old, new in pairs if old != new]:
            raise ValueError(
                f"The images are not those that the run in {cut(folder)} began with: "
                f"{cut(others[0])} shows something else ({len(others)} in all, "
                f"{split}). Bring the old ones back to go on, or start over with "
                "--restart."
            )


def _digest(data: DataSet) -> str:
    """Return the SHA-256 of what is known of images beside their names."""
    digest = hashlib.sha256(json.dumps(data.class_names).encode())
    for values in (data.labels, data.roles, data.sequences, data.boxes):
        if values is not None:
            array = np.ascontiguousarray(values)
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
