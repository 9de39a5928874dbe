"""Recall, queries a second, build time and memory, against raw ScaNN and peers."""

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.engines import ENGINES, PEERS
from benchmarks.search.measuring import BATCH, K
from benchmarks.search.sets import SETS, draw, scaled
from benchmarks.search.worker import PEER_PYTHON, Worker
from benchmarks.session import machine, use_threads, write

_OURS = "tfdml"
_BATCHES = {"batched": BATCH, "single": 1}


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--sets", nargs="+", choices=SETS, default=["clustered", "realistic"])
    add("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    add("--queries", type=int, default=2_000, help="that are searched with (2000)")
    add("--target", type=float, default=0.99, help="recall@10 to be reached (0.99)")
    add("--threads", type=int, default=2, help="CPU cores to use (2)")
    add("--rounds", type=int, default=5, help="of the times (5)")
    add("--seconds", type=float, default=1, help="of each measurement (1)")
    add("--scale", type=float, default=1, help="of the sets, for a quick look (1)")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if an engine failed."""
    use_threads(options.threads)
    about = {**machine(), "threads": options.threads, "scale": options.scale}
    print(about, flush=True)
    failed = False
    for name in options.sets:
        with tempfile.TemporaryDirectory() as folder:
            _write_set(name, Path(folder), options)
            records = []
            for record in _measure(Path(folder), options):
                record = {"benchmark": "search_speed", "set": name, **record}
                failed |= "error" in record
                records.append(record)
                write(options.out, {**about, **record})
                print(record, flush=True)
        print(summary(records), flush=True)
    return int(failed)


def _write_set(name: str, folder: Path, options: argparse.Namespace) -> None:
    from tfdml.neighbors import nearest_neighbors

    gallery, queries = draw(scaled(SETS[name], options.scale), options.queries)
    true, _ = nearest_neighbors(queries, gallery, K)
    for part, array in (("gallery", gallery), ("queries", queries), ("true", true)):
        np.save(folder / f"{part}.npy", array)


def _measure(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a record for each engine; ours lives as long as the others are timed."""
    with Worker(_OURS, folder, options.threads, {"target": options.target}) as ours:
        yield {
            "engine": _OURS,
            **ours.built,
            **(ours.choose(0) or {}),
            **ours.measure_overhead(options.rounds * options.seconds),
            **_figures(_rounds([ours], options)),
            **ours.measure_saving(),
        }
        for engine in options.engines:
            if engine == _OURS:
                continue
            if engine in PEERS and not PEER_PYTHON.exists():
                error = "no peers here: `make .peers/search/installed` installs them"
                yield {"engine": engine, "error": error}
                continue
            like = ours.built["settings"]
            try:
                with Worker(engine, folder, options.threads, like) as other:
                    # ScaNN alone is measured as ours has set it, whatever it finds.
                    target = options.target if engine in PEERS else 0
                    yield {"engine": engine, **_beside(other, ours, target, options)}
            except RuntimeError as error:
                yield {"engine": engine, "error": str(error)}


def _beside(
    other: Worker, ours: Worker, target: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Time an engine and ours in turn."""
    chosen = other.choose(target)
    if chosen is None:
        return {**other.built, "reaches_target": False}
    rounds = _rounds([other, ours], options)
    ratios = {}
    for kind, pairs in rounds.items():
        ratios[f"ours_{kind}"] = statistics.median(
            mine["rate"] / its["rate"] for its, mine in pairs
        )
        ratios[f"ours_{kind}_by_cpu"] = statistics.median(
            its["cpu_us"] / mine["cpu_us"] for its, mine in pairs
        )
    return {**other.built, **chosen, **_figures(rounds), **ratios}


def _rounds(
    workers: Sequence[Worker], options: argparse.Namespace
) -> dict[str, list[list[dict[str, float]]]]:
    """Measure workers in turn; a list for each round, by the kind of call."""
    found: dict[str, list[list[dict[str, float]]]] = {kind: [] for kind in _BATCHES}
    for _ in range(options.rounds):
        for kind, batch in _BATCHES.items():
            found[kind].append([w.measure(batch, options.seconds) for w in workers])
    return found


def _figures(rounds: dict[str, list[list[dict[str, float]]]]) -> dict[str, float]:
    """Return the medians of the first worker."""
    return {
        f"{kind}_{key}": statistics.median(one[0][key] for one in measured)
        for kind, measured in rounds.items()
        for key in ("rate", "cpu_us")
    }


def summary(records: Sequence[dict[str, Any]]) -> str:
    """Make a table of the records of one set.

    "ours" is the rate of the index over that of the engine, measured in turn.
    """
    lines = [
        "| engine | recall@10 | @1 | per second, batched | ours | by CPU "
        "| single | ours | by CPU | build s | CPU s | MB |",
        "| --- |" + 11 * " ---: |",
    ]
    for record in records:
        if "error" in record:
            lines.append(f"| {record['engine']} | {record['error']} |" + 10 * " |")
            continue
        if "batched_rate" not in record:
            lines.append(f"| {record['engine']} | below target |" + 10 * " |")
            continue
        cells = [f"{record['recall_at_10']:.4f}", f"{record['recall_at_1']:.4f}"]
        for kind in _BATCHES:
            cells.append(f"{record[f'{kind}_rate']:,.0f}")
            for key in (f"ours_{kind}", f"ours_{kind}_by_cpu"):
                cells.append(f"{record[key]:.2f} x" if key in record else "")
        for key in ("build_seconds", "build_cpu_seconds", "megabytes"):
            cells.append(f"{record[key]:,.0f}")
        lines.append(f"| {record['engine']} | {' | '.join(cells)} |")
    for record in records:
        if "overhead" in record:
            lines.append(
                f"\nInterface over ScaNN alone, batched: {record['overhead']:+.1%} "
                f"({record['overhead_cpu']:+.1%} by CPU). Peak while saving: "
                f"{record['save_peak']:.2f} x the memory before."
            )
    return "\n".join(lines)
