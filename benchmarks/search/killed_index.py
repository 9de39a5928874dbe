"""Change an index until it is killed, and find what it has lost.

`kill_at_random` starts this file as a program, which changes an index at random and
says what it does. After a while it kills it, loads the index, and compares. The
benchmark `kill` and tests use it.
"""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
DIMENSION = 8
# How often: changes are what is lost first.
CHANGES = {"add": 10, "update": 4, "remove": 3, "save": 2, "compact": 1}


@dataclass
class Killed:
    """What a kill has left.

    Args:
        acknowledged: Changes that had returned, saves and compactions too.
        last: What it was doing: an operation, or "" for nothing.
        lost: What is wrong with the index, a sentence each.
        unreadable: Why it cannot be loaded; "" where it can.
        items: Version by id, as loaded.
        seconds: How long the operations took that had returned, by their name.
    """

    acknowledged: int = 0
    last: str = ""
    lost: list[str] = field(default_factory=list)
    unreadable: str = ""
    items: dict[int, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)


def embedding_of(number: int, version: int) -> np.ndarray:
    """Return the embedding of a version of an item."""
    rng = np.random.default_rng([number, version])
    return rng.normal(size=DIMENSION).astype(np.float32)


def attributes_of(versions: list[int]) -> dict[str, list[Any]]:
    """Return attributes from which the versions can be read."""
    names = [f"é{version}" if version % 3 else None for version in versions]
    return {"version": versions, "name": names}


def kill_at_random(
    folder: Path,
    seconds: float,
    seed: int,
    *,
    kind: str = "ExactIndex",
    items: dict[int, int] | None = None,
    changes: int = 0,
    during: str = "",
) -> Killed:
    """Change an index in another process, kill it, and tell what it has lost.

    Args:
        folder: Of the index; made if it is missing.
        seconds: When to kill it, after the index was loaded and `changes` and `during`
            were reached.
        seed: Of the changes.
        kind: The class.
        items: Version by id, as the last call returned them.
        changes: How many operations must have returned first.
        during: An operation of `CHANGES`, the next of which must have begun. Default:
            none need have.

    Raises:
        RuntimeError: The process ended by itself.
    """
    module = "benchmarks.search.killed_index"
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(folder), kind, str(seed)],
        cwd=ROOT,
        # A buffer would keep lines behind the first from `communicate`.
        bufsize=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, is_running = b"", True
    while is_running and not _is_reached(said, changes, during):
        more = process.stdout.read(2**16) if process.stdout else b""
        said, is_running = said + more, bool(more)
    if is_running:
        time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest, errors = process.communicate()
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(errors.decode())
    lines = [json.loads(line) for line in _whole(said + rest)]
    return compared(folder, lines, items or {})


def _is_reached(said: bytes, changes: int, during: str) -> bool:
    place = -1
    for _ in range(changes + 1):  # the load is one of the operations
        place = said.find(b'{"done"', place + 1)
        if place < 0:
            return False
    return (f'{{"do": "{during}"'.encode() if during else b"\n") in said[place:]


def _whole(output: bytes) -> list[bytes]:
    """Return the lines that were written to their end."""
    return output.split(b"\n")[:-1]


def compared(folder: Path, said: list[dict[str, Any]], items: dict[int, int]) -> Killed:
    """Compare an index with what was said of it.

    Args:
        folder: Of the index.
        said: What its process said before each operation, and after it.
        items: Version by id, when it was loaded.

    Returns:
        What it has lost: an operation that had returned must have been made, and one
        that had not, as a whole or not at all.
    """
    from tfdml.index import IndexFileError, load_index

    killed = Killed()
    before = after = dict(items)
    for step in said:
        if "done" in step:
            killed.acknowledged += 1
            killed.last, before = "", after
            times = killed.seconds.setdefault(step["done"], [])
            times.append(step.get("seconds", 0.0))
        else:
            killed.last = step["do"]
            after = _changed(before, step)
    try:
        index = load_index(folder)
    except IndexFileError as error:
        killed.unreadable = str(error)
        return killed
    ids = index.ids.tolist()
    found = index.get(ids)
    killed.items = {
        number: int(attributes["version"])
        for number, attributes in zip(ids, found.attributes, strict=True)
    }
    if killed.items not in (before, after):
        for number in {*before, *killed.items, *after}:
            version = killed.items.get(number)
            if version not in (before.get(number), after.get(number)):
                killed.lost.append(f"{number} is {version}, not {before.get(number)}")
        if not killed.lost:
            killed.lost.append(f"half of an operation was made: {killed.last}")
    for number, embedding in zip(ids, found.embeddings, strict=True):
        if not (embedding == embedding_of(number, killed.items[number])).all():
            killed.lost.append(f"{number} has another embedding")
    names = attributes_of(list(killed.items.values()))["name"]
    if [attributes.get("name") for attributes in found.attributes] != names:
        killed.lost.append("attributes have changed")
    return killed


def _changed(items: dict[int, int], step: dict[str, Any]) -> dict[int, int]:
    """Return the items after an operation."""
    ids, versions = step.get("ids", []), step.get("versions", [])
    if step["do"] == "remove":
        return {n: v for n, v in items.items() if n not in set(ids)}
    return items | dict(zip(ids, versions, strict=True))


def change_for_ever(folder: Path, kind: str, seed: int) -> None:
    """Change an index until killed; say each operation before and after it."""
    from tfdml.index import ExactIndex, LocalIndex, load_index

    draw = random.Random(seed)  # noqa: S311
    if folder.exists():
        index = load_index(folder)
    else:
        classes: dict[str, Any] = {"ExactIndex": ExactIndex, "LocalIndex": LocalIndex}
        index = classes[kind].build(np.empty((0, DIMENSION)), [], attributes_of([]))
        index.save(folder)
    ids = index.ids.tolist()
    versions = [values["version"] for values in index.get(ids).attributes]
    items = dict(zip(ids, versions, strict=True))
    following = max(items, default=0) + 1
    _say({"done": "load"})
    while True:
        do = draw.choices(list(CHANGES), list(CHANGES.values()))[0]
        step: dict[str, Any] = {"do": do}
        count = draw.choice([1, 1, 1, 2, 30])
        if do == "add":
            step["ids"] = list(range(following, following + count))
            step["versions"] = [0] * count
            following += count
        elif do in ("update", "remove"):
            if len(items) < 50:
                continue
            step["ids"] = draw.sample(sorted(items), count)
            if do == "update":
                step["versions"] = [items[number] + 1 for number in step["ids"]]
        _say(step)
        start = time.perf_counter()
        _make(index, folder, step)
        _say({"done": do, "seconds": time.perf_counter() - start})
        items = _changed(items, step)


def _make(index: Any, folder: Path, step: dict[str, Any]) -> None:
    ids, versions = step.get("ids", []), step.get("versions", [])
    rows = [embedding_of(*pair) for pair in zip(ids, versions, strict=False)]
    if step["do"] == "add":
        index.add(np.stack(rows), ids, attributes_of(versions))
    elif step["do"] == "update":
        index.update(ids, np.stack(rows), attributes_of(versions))
    elif step["do"] == "remove":
        index.remove(ids)
    elif step["do"] == "save":
        index.save(folder)
    else:
        index.compact()


def _say(step: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(step) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    change_for_ever(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
