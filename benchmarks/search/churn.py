"""Mix adds and removes with searches: wrong answers, recall, rates and memory."""

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import added_memory, resident_bytes
from benchmarks.search.churning import Churning
from benchmarks.search.ledger import Ledger
from benchmarks.search.sets import SETS, draw, scaled
from benchmarks.session import machine, use_threads, write

_SET = "clustered"
_REPORTED = ("items", "dimension", "searchers", "target")
_BLOCK = 10_000


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--items", type=int, default=200_000, help="at the beginning (200000)")
    add("--dimension", type=int, default=128, help="of the embeddings (128)")
    add("--adds", type=int, default=100_000, help="items that are added (100000)")
    add("--removes", type=int, default=50_000, help="items that are removed (50000)")
    add("--seconds", type=float, default=300, help="to spread the changes over (300)")
    add("--searchers", type=int, default=4, help="threads that search (4)")
    add("--target", type=float, default=0.99, help="recall@10 to build for (0.99)")
    add("--moments", type=int, default=10, help="at which recall is measured (10)")
    add("--sample", type=int, default=500, help="queries it is measured with (500)")
    add(
        "--folder",
        type=Path,
        help="save there (replacing an index), so that changes are logged",
    )
    add("--threads", type=int, default=2, help="CPU cores to use (2)")
    add("--seed", type=int, default=0, help="of changes and queries (0)")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if an answer was wrong or something failed.

    The exit status does not judge recall.
    """
    if options.removes >= options.items:
        sys.exit("`--removes` must be less than `--items`.")
    use_threads(options.threads)
    about = {**machine(), "threads": options.threads}
    print(about, flush=True)
    record = churn(options, about)
    write(options.out, {**about, **record})
    for example in record["examples"]:
        print(f"failed: {example}")
    print(summary(record))
    bad = ("wrong", "exceptions", "failed_compactions", "lost", "left", "not_restored")
    return int(any(record[name] for name in bad))


def churn(options: argparse.Namespace, about: dict[str, Any]) -> dict[str, Any]:
    """Build an index, change it while it is searched, and check every answer.

    Args:
        options: Those of the command.
        about: What is written with each look at the index.

    Returns:
        The record of the whole.
    """
    from tfdml.index import LocalIndex

    usual = SETS[_SET]
    everything = scaled(
        replace(usual, dimension=options.dimension),
        (options.items + options.adds) / usual.items,
    )
    rows, queries = draw(everything, max(2_000, options.sample))
    before, start = resident_bytes(), time.perf_counter()
    index = LocalIndex.build(
        rows[: options.items], target_recall=options.target, seed=options.seed
    )
    build_seconds = time.perf_counter() - start
    built = resident_bytes()
    if options.folder is not None:
        index.save(options.folder)
    ledger = Ledger(rows, options.items)
    churning = Churning(index, ledger, queries, options, about)
    _, added = added_memory(churning.run)
    start = time.perf_counter()
    index.close()
    looks, tally = churning.looks, churning.tally
    waits = churning.seconds
    recalls = [look["recall"] for look in looks]
    single = np.percentile(tally.single_ms or [np.nan], [50, 95])
    return {
        "benchmark": "search_churn",
        **{name: getattr(options, name) for name in _REPORTED},
        "logged": options.folder is not None,
        "build_seconds": build_seconds,
        "changing_seconds": churning.changing_seconds,
        "seconds": churning.took,
        "close_seconds": time.perf_counter() - start,
        "added": churning.made["add"],
        "removed": churning.made["remove"],
        "add_calls": len(waits["add"]),
        "remove_calls": len(waits["remove"]),
        "adds_a_second": churning.made["add"] / churning.changing_seconds,
        # What a writer that never pauses could do beside these searches.
        "adds_a_second_inside": churning.made["add"] / max(sum(waits["add"]), 1e-9),
        "slowest_change_ms": 1000 * max([*waits["add"], *waits["remove"]], default=0),
        "search_calls": tally.counts["calls"],
        "searches": tally.counts["queries"],
        "searches_a_second": tally.counts["queries"] / churning.took,
        "single_p50_ms": float(single[0]),
        "single_p95_ms": float(single[1]),
        "compactions": len(churning.compactions),
        "compaction_seconds": churning.compactions,
        "failed_compactions": churning.failed_compactions,
        "wrong": tally.counts["wrong"],
        "exceptions": tally.counts["exception"],
        "examples": tally.examples,
        "lost": max(look["lost"] for look in looks),
        "left": max(look["left"] for look in looks),
        "least_recall": min(recalls),
        "median_recall": statistics.median(recalls),
        "start_recall": recalls[0],
        "not_restored": _not_restored(options.folder, ledger),
        "build_megabytes": (built - before) / 2**20,
        "churn_megabytes": (looks[-1]["resident_bytes"] - before) / 2**20,
        "peak_megabytes": (built + added - before) / 2**20,
    }


def _not_restored(folder: Path | None, ledger: Ledger) -> int:
    """Count the items that the saved index lacks, has too many or otherwise."""
    if folder is None:
        return 0
    from tfdml.index import LocalIndex

    wanted = ledger.ids()
    with LocalIndex.load(folder) as index:
        held = index.ids
        both = np.intersect1d(held, wanted)
        count = len(held) + len(wanted) - 2 * len(both)
        for start in range(0, len(both), _BLOCK):
            ids = both[start : start + _BLOCK]
            same = index.get(ids).embeddings == ledger.rows[ids]
            count += int(np.count_nonzero(~same.all(axis=1)))
    return count


def summary(record: dict[str, Any]) -> str:
    """Make a table of the record."""
    where = "logged on the disk" if record["logged"] else "in memory alone"
    compactions = record["compaction_seconds"]
    lines = [
        f"| {record['items']:,} x {record['dimension']}, {where} | |",
        "| --- | ---: |",
    ]
    cells = {
        "wrong answers": f"{record['wrong']:,} of {record['search_calls']:,}",
        "exceptions": f"{record['exceptions']:,}",
        "items lost, left after removal": f"{record['lost']:,}, {record['left']:,}",
        "recall@10, least (median; at the start; target)": (
            f"{record['least_recall']:.4f} ({record['median_recall']:.4f}; "
            f"{record['start_recall']:.4f}; {record['target']})"
        ),
        "added, removed": f"{record['added']:,}, {record['removed']:,}",
        "adds a second (inside of `add`)": (
            f"{record['adds_a_second']:,.0f} ({record['adds_a_second_inside']:,.0f})"
        ),
        "slowest change": f"{record['slowest_change_ms']:,.0f} ms",
        "searches a second": f"{record['searches_a_second']:,.0f}",
        "a single search, median, p95": (
            f"{record['single_p50_ms']:.1f}, {record['single_p95_ms']:.1f} ms"
        ),
        "compactions (failed)": (
            f"{record['compactions']} ({record['failed_compactions']})"
        ),
        "seconds of a compaction, median": (
            f"{statistics.median(compactions):.1f}" if compactions else "none"
        ),
        "memory of the index: built, at the end, peak": (
            f"{record['build_megabytes']:,.0f}, {record['churn_megabytes']:,.0f}, "
            f"{record['peak_megabytes']:,.0f} MB"
        ),
    }
    if record["logged"]:
        cells["items not restored"] = f"{record['not_restored']:,}"
    lines += [f"| {name} | {cell} |" for name, cell in cells.items()]
    return "\n".join(lines)
