"""Memory, time and recall of short codes with rescoring, against exact search."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.measuring import BATCH, K
from benchmarks.search.sets import SETS, draw, scaled
from benchmarks.session import machine, use_threads, write

ROOT = Path(__file__).parents[2]

# In a process of its own: what a process holds that opens an index and searches it.
_SEARCH = """
import json, sys, time
import numpy as np
from benchmarks.peak import private_bytes, resident_bytes
from tfdml.index import load_index

folder, place, batch, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
queries = np.load(place + "/queries.npy")
true = np.load(place + "/true.npy")
before, resident = private_bytes(), resident_bytes()
with load_index(folder) as index:
    found = index.search(queries, 10).ids  # also what warms up
    held, resident = private_bytes() - before, resident_bytes() - resident
    cpu = {"batched": [], "single": []}
    for _ in range(rounds):
        start = time.process_time()
        index.search(queries[:batch], 10)
        cpu["batched"].append((time.process_time() - start) / len(queries[:batch]))
        start = time.process_time()
        for query in queries[:100]:
            index.search(query[None], 10)
        cpu["single"].append((time.process_time() - start) / len(queries[:100]))
hits = (found[:, :, None] == true[:, None, :]).any(axis=2)
print(json.dumps({
    "held_megabytes": held / 2**20,
    "resident_megabytes": resident / 2**20,
    "recall_at_10": float(hits.mean()),
    "batched_cpu_us": 1e6 * min(cpu["batched"]),
    "single_cpu_us": 1e6 * min(cpu["single"]),
}))
"""


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--sets", nargs="+", choices=SETS, default=["clustered", "realistic"])
    add("--embeddings", help="an .npy file to search in place of the sets")
    add("--scale", type=float, default=1, help="share of the items of a set (1)")
    add("--queries", type=int, default=1_000, help="that are searched with (1000)")
    add("--target", type=float, default=0.99, help="recall@10 to be reached (0.99)")
    add("--threads", type=int, default=2, help="CPU cores to use (2)")
    add("--rounds", type=int, default=3, help="of the times (3)")


def run(options: argparse.Namespace) -> int:
    """Build, measure, print and write."""
    use_threads(options.threads)
    about = {**machine(), "threads": options.threads, "scale": options.scale}
    print(about, flush=True)
    names = [options.embeddings] if options.embeddings else options.sets
    for name in names:
        records = []
        for record in measured(name, options):
            records.append({"benchmark": "search_codes", "set": name, **record})
            write(options.out, {**about, **records[-1]})
            print(records[-1], flush=True)
        print(summary(records), flush=True)
    return 0


def kinds(dimension: int) -> dict[str, dict[str, Any]]:
    """Return what is built, by name: exact search first."""
    quarter = max(1, dimension // 4)
    return {
        "exact": {"engine": "exact"},
        f"float32, {quarter}": {"codes": "float32", "code_dimensions": quarter},
        "int8": {"codes": "int8"},
        "binary": {"codes": "binary"},
    }


def measured(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the record of each kind of index of a set."""
    from tfdml.index import LocalIndex
    from tfdml.neighbors import nearest_neighbors

    if name in SETS:
        gallery, queries = draw(scaled(SETS[name], options.scale), options.queries)
    else:
        rows = np.load(name)
        drawn = np.random.default_rng(0).permutation(len(rows))
        queries, gallery = (
            rows[drawn[: options.queries]],
            rows[drawn[options.queries :]],
        )
    true, _ = nearest_neighbors(queries, gallery, K)
    with tempfile.TemporaryDirectory() as place:
        np.save(f"{place}/queries.npy", queries)
        np.save(f"{place}/true.npy", true)
        for kind, wanted in kinds(gallery.shape[1]).items():
            folder = Path(place) / kind.partition(",")[0]
            start = time.perf_counter()
            with LocalIndex.build(
                gallery, target_recall=options.target, **wanted
            ) as index:
                seconds = time.perf_counter() - start
                index.save(folder)
                settings = index.settings
                built = {"method": "exact", "shortlist": 0}
                if settings is not None and settings.method == "codes":
                    built = {"method": "codes", "shortlist": settings.reorder}
                recall = index.recall
            arguments = [str(folder), place, str(BATCH), str(options.rounds)]
            done = subprocess.run(
                [sys.executable, "-c", _SEARCH, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            yield {
                "kind": kind,
                "items": len(gallery),
                "dimension": gallery.shape[1],
                **built,
                "said_recall": None if recall is None else recall.value,
                "build_seconds": seconds,
                **json.loads(done.stdout),
            }


def summary(records: list[dict[str, Any]]) -> str:
    """Make a table of the records of one set; times are those of exact search's."""
    lines = [
        "| codes | shortlist | recall@10, said | of other queries | MB held | with "
        "pages of the file | CPU us per query, batched | single | times exact, "
        "batched | single | build s |",
        "| --- |" + 10 * " ---: |",
    ]
    for record in records:
        cells = [
            f"{record['shortlist']}" if record["shortlist"] else "all",
            f"{record['said_recall']:.4f}",
            f"{record['recall_at_10']:.4f}",
            f"{record['held_megabytes']:,.0f}",
            f"{record['resident_megabytes']:,.0f}",
        ]
        for key in ("batched_cpu_us", "single_cpu_us"):
            cells.append(f"{record[key]:,.0f}")
        for key in ("batched_cpu_us", "single_cpu_us"):
            cells.append(f"{record[key] / records[0][key]:.2f}")
        cells.append(f"{record['build_seconds']:,.1f}")
        lines.append(f"| {record['kind']} | {' | '.join(cells)} |")
    return "\n".join(lines)
