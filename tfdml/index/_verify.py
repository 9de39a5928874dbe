"""Check everything about a saved index."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml._core.arguments import whole
from tfdml.files import short_names
from tfdml.index._load import LOCAL_CLASSES
from tfdml.index.local import MemoryIndex
from tfdml.index.rows import Snapshot
from tfdml.index.storage import LogError, has_whole_length, read_log
from tfdml.messages import cut
from tfdml.versioned_folder import (
    IndexFileError,
    check_file,
    log_of,
    read_manifest,
    saved_data,
)

_ROWS = 65_536  # that are looked at at once
_FOUND = 0.9  # of the sample, where the search is approximate
_TOLERANCE = 1e-3  # of scores, relative: engines sum in float32


@dataclass(frozen=True)
class VerifyReport:
    """The result of `verify_index`.

    Attributes:
        folder: The folder.
        problems: What is wrong, one sentence each; empty for an intact index.
        kind: The class, such as `"LocalIndex"`; "" if unknown.
        items: Items that can be found, after the changes in the log.
        files: Files of data whose SHA-256 is correct.
        bytes: Their size.
        changes: Changes in the log.
        torn_bytes: Bytes at the end of the log, of a change that was cut short before
            it was acknowledged; the next change overwrites them.
        tried: Items that were searched for.
        found: Those of them that were found, at least as near as they are.
    """

    folder: str
    problems: tuple[str, ...] = ()
    kind: str = ""
    items: int = 0
    files: int = 0
    bytes: int = 0
    changes: int = 0
    torn_bytes: int = 0
    tried: int = 0
    found: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        """Return all of it, one line each."""
        lines = [f"{self.folder}: {'intact' if self.ok else 'damaged'}"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        if self.kind:
            lines.append(f"  {self.kind} of {self.items} items")
        lines.append(f"  {self.files} files are whole, {self.bytes} bytes")
        lines.append(f"  {self.changes} changes in the log")
        if self.torn_bytes:
            lines.append(
                f"  {self.torn_bytes} bytes of a change that was cut short before it "
                "was acknowledged, which is harmless"
            )
        if self.tried:
            lines.append(f"  {self.found} of {self.tried} items find themselves")
        return "\n".join(lines)


@short_names()
def verify_index(
    folder: str | os.PathLike[str], *, sample: int = 1000, seed: int = 0
) -> VerifyReport:
    """Check everything about the index in a folder.

    The manifest, the size and SHA-256 of every file, and the log are checked. If they
    are intact, the loaded index is checked too: ids must not repeat, embeddings must be
    finite, lengths must agree, and a sample of items must find themselves. Nothing is
    changed. With approximate search, one item in ten may miss itself. For a
    `MilvusIndex`, the folder is checked, not the cluster.

    Args:
        folder: What `save` has written. Others may search and change it meanwhile.
        sample: How many items are searched for, at most; 0 for none.
        seed: Seed of the drawing of the sample.

    Returns:
        A report. A damaged index does not raise: its report has `problems`.
    """
    sample = whole("sample", sample, least=0)
    seed = whole("seed", seed, least=0)
    found = _looked_at(Path(folder), sample, seed)
    problems: list[str] = found["problems"]
    while problems and _data_name(Path(folder)) not in (None, found["data"]):
        # Another process has replaced the index meanwhile.
        found = _looked_at(Path(folder), sample, seed)
        problems = found["problems"]
    del found["data"]
    found["problems"] = tuple(problems)
    return VerifyReport(**found)


def _looked_at(folder: Path, sample: int, seed: int) -> dict[str, Any]:
    """Check what a folder holds now."""
    found = _find_damage(folder)
    problems: list[str] = found["problems"]
    # What reads damaged files may end the process.
    if not problems and found["kind"] in LOCAL_CLASSES:
        try:
            index = LOCAL_CLASSES[found["kind"]].load(folder)
        except (IndexFileError, OSError) as error:
            problems.append(str(error))
        else:
            found |= _look_into(index, sample, seed, problems)
    return found


def _data_name(folder: Path) -> str | None:
    try:
        return saved_data(folder).name
    except (IndexFileError, OSError):
        return None


def _find_damage(folder: Path) -> dict[str, Any]:
    """Check the manifest, every file and the log, without loading anything."""
    found: dict[str, Any] = {"folder": str(folder), "problems": [], "data": None}
    problems: list[str] = found["problems"]
    try:
        manifest = read_manifest(folder)
        found["data"] = manifest["data"]
        found["kind"] = str(manifest.get("class", ""))
        data = folder / manifest["data"]
        sizes = list(_sizes(data, manifest["files"], problems))
        found |= {"files": len(sizes), "bytes": sum(sizes)}
        if found["kind"] in LOCAL_CLASSES:
            found |= _look_through_log(log_of(data), problems)
        elif found["kind"] != "MilvusIndex":
            problems.append(
                f"{folder} holds a {found['kind']!r}, which is not an index."
            )
    except (IndexFileError, LogError, OSError) as error:
        problems.append(str(error))
    return found


def _sizes(data: Path, files: dict[str, Any], problems: list[str]) -> Iterator[int]:
    """Yield the size of each intact file."""
    for name, measured in files.items():
        try:
            if not isinstance(measured, dict):
                raise IndexFileError(f"The manifest has no size of {cut(data / name)}.")
            check_file(data / name, measured)
            yield int(measured["bytes"])
        except (IndexFileError, OSError) as error:
            problems.append(str(error))


def _look_through_log(log: Path, problems: list[str]) -> dict[str, int]:
    with log.open("rb") as file:
        end = len(file.readline())
    ends = [end, *(place for _, place in read_log(log, log.stem))]
    torn = max(0, log.stat().st_size - ends[-1])
    if torn and has_whole_length(log, log.stem, ends[-1]):
        problems.append(
            f"{log}: the change at byte {ends[-1]} has its length and not its content. "
            "If the power failed while it was written, it was not acknowledged, and "
            "the next change of the index removes it. Otherwise the disk has lost it: "
            "restore the folder from a copy."
        )
    return {"changes": len(ends) - 1, "torn_bytes": torn}


def _look_into(
    index: MemoryIndex, sample: int, seed: int, problems: list[str]
) -> dict[str, int]:
    """Check what a loaded index holds, and search for a sample of it."""
    state = index._table.snapshot
    problems += _of_rows(state)
    rows = np.flatnonzero(state.live)
    if len(rows) > sample:
        rows = np.sort(np.random.default_rng(seed).choice(rows, sample, replace=False))
    found = 0
    if len(rows) and not problems:
        found = _count_found(index, state, rows, problems)
    return {"items": state.count, "tried": len(rows), "found": found}


def _of_rows(state: Snapshot, at_once: int = _ROWS) -> Iterator[str]:
    """Yield what is wrong with ids and embeddings."""
    ids = state.ids_of(np.flatnonzero(state.live))
    times = Counter(ids.tolist())
    for repeated in [value for value in times if times[value] > 1][:10]:
        yield f"The id {repeated!r} occurs more than once."
    for start in range(0, state.rows, at_once):
        rows = np.arange(start, min(start + at_once, state.rows))
        embeddings = state.embeddings_of(rows[state.live[rows]])
        if not np.isfinite(embeddings).all():
            yield f"Embeddings from row {start} on are not finite."
        elif state.metric == "cosine" and not embeddings.any(axis=1).all():
            yield f"Embeddings from row {start} on are zeros, which have no cosine."


def _count_found(
    index: MemoryIndex, state: Snapshot, rows: NDArray[np.int64], problems: list[str]
) -> int:
    """Search for items with their own embeddings, and count those that are found.

    An item is found if the best hit is at least as near as the item itself: others may
    have the same embedding, and by dot product longer ones are nearer.
    """
    embeddings = state.embeddings_of(rows)
    queries, own = embeddings, np.ones(len(rows))
    if state.metric == "dot_product":
        # Scaled so that float32 can represent the scores.
        exact = embeddings.astype(np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True) * _largest(state)
        queries = (exact / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        own = (queries * exact).sum(axis=1)
    elif state.metric == "squared_euclidean":
        own = np.zeros(len(rows))
    try:
        hits, scores = index.search(queries, 1)
    except (ValueError, RuntimeError) as error:
        problems.append(f"A search for the items fails: {error}")
        return 0
    slack = _TOLERANCE * own
    is_own = hits[:, 0] == state.ids_of(rows)
    if (np.abs(scores[:, 0] - own) > slack)[is_own].any():
        problems.append("Scores are not those of the embeddings.")
    found = int(np.count_nonzero(scores[:, 0] >= own - slack))
    if found < _FOUND * len(rows):
        problems.append(f"Only {found} of {len(rows)} items find themselves.")
    return found


def _largest(state: Snapshot) -> float:
    """Return about the largest absolute value in all embeddings."""
    found = [
        max(float(rows.max(initial=0)), -float(rows.min(initial=0)))
        for rows in (state.base_embeddings, state.tail_embeddings)
    ]
    return min(max(*found, 1e-30), 1e30)
