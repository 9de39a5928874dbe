"""Measure the ids and attributes of one library, in a process of its own.

    python benchmarks/search/rows_worker.py LIBRARY ROWS

It prints a line of JSON: CPU seconds, and bytes where the name says so. Polars builds
the same columns and answers the same filter; it has no index to change, save or search.
"""

import ctypes
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import resident_bytes

_CLASSES = [f"class {number}" for number in range(1_000)]
_WANTED = _CLASSES[5:10]
_CHEAP, _DEAR = 20.0, 40.0
_SHORT = 100_000
_LONG = "w" * 1_000
_BATCH = 1_000
_SEARCHED = 20_000


def attributes(rows: int) -> dict[str, list[Any]]:
    """Return a class and a price for each row, as a caller has them."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(len(_CLASSES), size=rows).tolist()
    return {
        "class": [_CLASSES[number] for number in numbers],
        "price": rng.uniform(0, 100, rows).tolist(),
    }


def ids(rows: int) -> list[str]:
    """Return ids such as paths."""
    return [f"folder {row % 1_000:03}/image {row:07}.jpg" for row in range(rows)]


def best(call: Callable[[], Any], times: int = 5) -> float:
    """Return the CPU seconds of the fastest of some calls, whatever else runs."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def polars(rows: int) -> dict[str, float]:
    """Measure polars."""
    import polars as pl

    values, names = attributes(rows), ids(rows)
    frame = pl.DataFrame(values)
    both = pl.col("class").is_in(_WANTED) & pl.col("price").is_between(_CHEAP, _DEAR)
    return {
        "matches": frame.select(both.sum()).item(),
        "build": best(lambda: pl.DataFrame(values), 3),
        "build_names": best(lambda: pl.DataFrame({"name": names}), 3),
        "filter": best(lambda: frame.select(both.sum()).item(), 20),
    }


def tfdml(rows: int) -> dict[str, float]:
    """Measure an `ExactIndex`; of few numbers a row, so that the rest weighs."""
    from tfdml.index import ExactIndex, Range, load_index

    values, names = attributes(rows), ids(rows)
    found = {
        "build": best(lambda: _columns(values, rows), 3),
        "build_names": best(lambda: _columns({"name": names}, rows), 3),
        **_long_id(ExactIndex),
        **_batches(ExactIndex),
    }
    gallery = np.random.default_rng(1).normal(size=(rows, 8)).astype(np.float32)
    where: Any = {"class": _WANTED, "price": Range(_CHEAP, _DEAR)}
    ExactIndex.build(gallery)  # the first takes more, for the libraries
    held = _held()
    numbered = ExactIndex.build(gallery)
    without = _held() - held
    index = ExactIndex.build(gallery, names)
    found["ids_bytes"] = _held() - held - 2 * without + 8 * len(numbered)
    found["text_bytes"] = sum(map(len, names))
    index = ExactIndex.build(gallery, names, values)
    found["matches"] = index.count(where)
    found["filter"] = best(lambda: index.count(where), 20)
    found["search"] = best(lambda: index.search(gallery[:1], 10, where=where))
    found["all_ids"] = best(lambda: index.ids, 2)
    number = iter(range(1_000))
    found["first_add"] = best(lambda: _add(index, gallery, next(number)), 1)
    found["add"] = best(lambda: _add(index, gallery, next(number)), 100)
    with tempfile.TemporaryDirectory() as folder:
        found["save"] = best(lambda: index.save(folder), 2)
        files = Path(folder).rglob("*ids*.npy")
        found["ids_file_bytes"] = sum(file.stat().st_size for file in files)
        found["load"] = best(lambda: load_index(folder), 3)
        read = load_index(folder)
        found["first_get"] = best(lambda: read.get(names[:1]), 1)
        found["logged_add"] = best(lambda: _add(index, gallery, next(number)), 50)
        index.close()
    return found


def _held() -> int:
    """Return the memory in use, without what was freed and is kept for later."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return resident_bytes()


def _columns(values: dict[str, list[Any]], rows: int) -> None:
    from tfdml.index.rows import Columns, check_attributes

    Columns().with_rows(0, check_attributes(values, rows, {}), rows)


def _long_id(index_class: Any) -> dict[str, float]:
    """Measure what ids take of which one is long."""
    gallery = np.ones((_SHORT, 1), np.float32)
    names = [f"image {row:05}" for row in range(_SHORT - 1)] + [_LONG]
    held = _held()
    index = index_class.build(gallery, names)
    return {"long_id_bytes": _held() - held if len(index) else 0}


def _batches(index_class: Any) -> dict[str, float]:
    """Search for many at once, whose results are named by strings."""
    gallery = np.random.default_rng(3).normal(size=(_SEARCHED, 32)).astype(np.float32)
    index = index_class.build(gallery, ids(_SEARCHED))
    return {"batch": best(lambda: index.search(gallery[:_BATCH], 10), 10)}


def _add(index: Any, gallery: np.ndarray, number: int) -> None:
    values = {"class": _CLASSES[:1], "price": [1.0]}
    index.add(gallery[:1], [f"new {number}"], values)


LIBRARIES = {"tfdml": tfdml, "polars": polars}


def main(arguments: list[str] | None = None) -> int:
    library, rows = sys.argv[1:] if arguments is None else arguments
    print(json.dumps(LIBRARIES[library](int(rows))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
