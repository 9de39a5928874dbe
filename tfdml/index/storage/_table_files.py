"""Write the rows of an index to files, and read them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tfdml.index._interface import Metric
from tfdml.index.rows import Column, Columns, Snapshot, StoredIds, Table, Texts
from tfdml.messages import cut, shown
from tfdml.versioned_folder import IndexFileError

# What is read of the manifest, here and by the index.
_MANIFEST = {
    "attributes": list,
    "count": int,
    "dimension": int,
    "metric": str,
    "model_fingerprint": str,
    "notes": dict,
}

ReadSearcher = Callable[[dict[str, Any], Path, NDArray[np.float32]], Any]


def describe_table(table: Table) -> dict[str, Any]:
    """Return what `read_table` needs besides the files, in JSON types."""
    return {"attributes": [[name, kind] for name, kind in table.kinds.items()]}


def write_table(table: Table, data: Path) -> None:
    """Write the rows of a table as they are into an empty folder."""
    state = table.snapshot
    arrays = {
        "embeddings": state.base_embeddings,
        "ids": _written(state.base_ids),
        "added_embeddings": state.tail_embeddings,
        "added_ids": _written(state.tail_ids),
        "live": state.live,
    }
    for number, (name, column) in enumerate(table.columns.items()):
        view = state.columns[name]
        arrays[f"attribute_{number}"] = view.values
        arrays[f"attribute_{number}_known"] = view.known
        if column.kind == "string":
            # One text, as an array of text is as wide as its longest row everywhere.
            text = "\0".join([*column.words, ""]).encode()
            arrays[f"attribute_{number}_words"] = np.frombuffer(text, np.uint8)
    for name, array in arrays.items():
        np.save(data / f"{name}.npy", array, allow_pickle=False)


def read_table(manifest: dict[str, Any], data: Path, read: ReadSearcher) -> Table:
    """Read what `write_table` has written.

    Args:
        manifest: With what `describe_table` and the index itself put into it.
        data: The folder of the files.
        read: Restores the searcher of the base.

    Raises:
        IndexFileError: The files do not fit each other, or the manifest.
    """

    def array(name: str) -> NDArray[Any]:
        if f"{name}.npy" not in manifest["files"]:  # so nobody has checked it
            raise IndexFileError(
                "The index is damaged: its manifest does not name "
                f"{cut(data / name)}.npy."
            )
        # Of embeddings that have codes, only those of a shortlist are needed.
        mode: Any = "r" if name == "embeddings" and manifest.get("codes") else None
        loaded = np.load(data / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
        return np.asarray(loaded)

    _check_manifest(manifest, data)
    live = array("live")
    ids, added_ids = (_read(name, array(name)) for name in ("ids", "added_ids"))
    embeddings, added = array("embeddings"), array("added_embeddings")
    width = manifest["dimension"]
    fits = {
        "live": _is(live, np.bool_, (len(ids) + len(added_ids),)),
        "embeddings": _is(embeddings, np.float32, (len(ids), width)),
        "added_embeddings": _is(added, np.float32, (len(added_ids), width)),
        "added_ids": added_ids.dtype == ids.dtype,
    }
    columns = {}
    for number, (name, kind) in enumerate(manifest["attributes"]):
        if not isinstance(name, str):
            raise TypeError(f"attribute {shown(name)} is not named by a string")
        file = f"attribute_{number}"
        values, known = array(file), array(f"{file}_known")
        words: list[str] = []
        if kind == "string":
            text = array(f"{file}_words").tobytes()
            words = text.decode().split("\0")[:-1]
            # A missing value has the number 0.
            fits[f"{file}_words"] = _are_below(values, len(words) or not known.any())
        fits[f"{file}_known"] = _is(known, np.bool_, live.shape)
        column = Column.restore(kind, values, known, words)
        fits[file] = _is(values, Column(kind).view(0).values.dtype, live.shape)
        columns[name] = column
    for name, fit in fits.items():
        if not fit:
            raise IndexFileError(
                f"The index is damaged: {cut(data / name)}.npy does not match the "
                "others. Build it again."
            )
    count = int(np.count_nonzero(live))
    if manifest["count"] != count:
        raise IndexFileError(
            f"The index is damaged: {cut(data)} must hold {shown(manifest['count'])} "
            f"items. Received: {count}. Build it again."
        )
    attributes = Columns(columns)
    snapshot = Snapshot(
        read(manifest, data, embeddings) if len(embeddings) else None,
        manifest["metric"],
        embeddings,
        ids,
        added,
        added_ids,
        attributes.view(len(live)),
        live,
        count,
    )
    return Table(snapshot, attributes)


def _check_manifest(manifest: dict[str, Any], data: Path) -> None:
    for name, kind in _MANIFEST.items():
        if not isinstance(manifest.get(name), kind):
            raise IndexFileError(
                f"The index is damaged: the manifest in {cut(data.parent)} must have a "
                f"{kind.__name__} as {shown(name)}. Received: "
                f"{shown(manifest.get(name))}."
            )
    if manifest["metric"] not in get_args(Metric):
        raise IndexFileError(
            f"The index is damaged: {cut(data.parent)} must have one of the metrics "
            f"{', '.join(get_args(Metric))}. Received: {shown(manifest['metric'])}."
        )


def _is(array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> bool:
    return array.dtype == dtype and array.shape == shape


def _written(ids: StoredIds) -> NDArray[Any]:
    return ids.text if isinstance(ids, Texts) else ids


def _read(name: str, array: NDArray[Any]) -> StoredIds:
    """Return ids from a file: up to version 2, strings had the width of the longest."""
    kind = array.dtype.kind if array.ndim == 1 else ""
    if array.dtype == np.int64 and kind:
        return array
    if array.dtype == np.uint8 and kind:
        return Texts.read(array)
    if kind == "U":
        return Texts.of(array.tolist())
    raise IndexFileError(
        f"The index is damaged: {name}.npy must hold ids. Received: {array.dtype} "
        f"{array.shape}. Build it again."
    )


def _are_below(array: NDArray[Any], limit: int) -> bool:
    return bool(((array >= 0) & (array < limit)).all())
