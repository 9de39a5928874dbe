"""CPU time and memory of ids and attributes, against polars and another tfdml."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.search.worker import PEER_PYTHON, ROOT
from benchmarks.session import processor, today, write

_WORKER = Path(__file__).with_name("rows_worker.py")
_WHAT = {
    "build": "attributes of a class and a price, from lists",
    "build_names": "an attribute of strings that all differ",
    "filter": "count of `class in (5 values)` and a range of prices",
    "search": "search of one query with this filter",
    "batch": "search of 1,000 queries among 20,000 rows with string ids",
    "all_ids": "all ids, handed out",
    "first_add": "first add of one row, which sorts the ids",
    "add": "each further add of one row, in memory",
    "logged_add": "the same, logged on the disk",
    "save": "save",
    "load": "load",
    "first_get": "first get by an id, which sorts the ids",
    "long_id_bytes": "100,000 ids, of which one has 1,000 characters",
    "ids_bytes": "the ids, in memory",
    "ids_file_bytes": "the ids, in the file",
    "text_bytes": "the ids as text: no less is possible",
}


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--rows", type=int, default=1_000_000, help="of the index (1,000,000)")
    add("--rounds", type=int, default=3, help="of all measurements (3)")
    add("--beside", type=Path, help="a checkout of another version, to compare with")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if the filters found different rows."""
    about = {"device": processor(), "date": today(), "rows": options.rows}
    print(about, flush=True)
    sources = {"tfdml": ("tfdml", ROOT)}
    if options.beside is not None:
        sources["beside"] = ("tfdml", options.beside.absolute())
    if PEER_PYTHON.exists():
        sources["polars"] = ("polars", ROOT)
    else:
        print("no peers here: `make .peers/search/installed` installs them")
    rounds = [
        {name: _measured(*source, options.rows) for name, source in sources.items()}
        for _ in range(options.rounds)
    ]
    for name in sources:
        found = {"engine": name, "rounds": [one[name] for one in rounds]}
        write(options.out, {"benchmark": "search_rows", **about, **found})
    print(summary(rounds), flush=True)
    return int(len({one["matches"] for own in rounds for one in own.values()}) > 1)


def _measured(library: str, checkout: Path, rows: int) -> dict[str, float]:
    """Measure the library of a checkout."""
    python = sys.executable if library == "tfdml" else str(PEER_PYTHON)
    paths = os.pathsep.join(map(str, (checkout, ROOT)))
    done = subprocess.run(
        [python, str(_WORKER), library, str(rows)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def summary(rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> str:
    """Make a table: medians, and in brackets those of ours by theirs of each round."""
    others = [name for name in rounds[0] if name != "tfdml"]
    lines = [
        f"| what | {' | '.join(['tfdml', *others])} |",
        "| --- |" + " ---: |" * (1 + len(others)),
    ]
    for key, what in _WHAT.items():
        cells = [_shown(key, statistics.median(one["tfdml"][key] for one in rounds))]
        for name in others:
            if key not in rounds[0][name]:
                cells.append("")
                continue
            middle = statistics.median(one[name][key] for one in rounds)
            ratio = statistics.median(
                one["tfdml"][key] / one[name][key] for one in rounds
            )
            cells.append(f"{_shown(key, middle)} ({ratio:.2g} x)")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(key: str, value: float) -> str:
    if key.endswith("bytes"):
        return f"{value / 1e6:.1f} MB"
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"
