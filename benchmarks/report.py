"""Write Markdown tables of what `benchmarks.losses` and `benchmarks.memory` wrote.

    python -m benchmarks.report losses.jsonl memory.jsonl

Of several measurements of one thing the last one counts.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, help="files of JSON lines")
    records = [
        json.loads(line)
        for file in parser.parse_args(arguments).files
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        key = tuple(str(record[k]) for k in ("backend", "device", "dimension"))
        groups.setdefault(key, []).append(record)
    for group in groups.values():
        for lines in _tables(group):
            print("\n".join(lines) + "\n")
    return 0


def _tables(records: list[Record]) -> Iterable[list[str]]:
    """Make all tables of one machine."""
    memory = [r for r in records if "matrices" in r]
    peers = [r for r in records if "peer" in r]
    ours = [r for r in records if r not in memory and r not in peers]
    yield from _ratios(ours, "ms", "floor_ms")
    yield from _ratios([r for r in ours if "product_ms" in r], "ms", "product_ms")
    yield from _peer_tables(peers, _by_loss(ours))
    yield from _memory_table(memory)


def _ratios(records: list[Record], above: str, below: str) -> Iterable[list[str]]:
    if not records:
        return
    batches = sorted({record["batch"] for record in records})
    known = _by_loss(records)
    floor = {
        batch: min(r[below] for r in records if r["batch"] == batch and below in r)
        for batch in batches
    }
    name = {"floor_ms": "floor", "product_ms": "own product"}[below]
    lines = [
        _about(records),
        "",
        f"| time / {name} | " + _join(f"B = {b}" for b in batches),
    ]
    lines.append("| --- |" + " ---: |" * len(batches))
    if below == "floor_ms":
        lines.append(f"| floor, ms | {_join(f'{floor[b]:.2f}' for b in batches)}")
    for loss in dict.fromkeys(record["loss"] for record in records):
        cells = (_ratio(known.get((loss, b)), above, below) for b in batches)
        mark = (
            " (s)" if any(r.get("sorts") for r in records if r["loss"] == loss) else ""
        )
        lines.append(f"| {loss}{mark} | {_join(cells)}")
    yield lines


def _ratio(record: Record | None, above: str, below: str) -> str:
    if record is None:
        return ""
    if "error" in record:
        return "error"
    return f"{record[above] / record[below]:.2f}"


def _peer_tables(
    records: list[Record], ours: dict[tuple[str, int], Record]
) -> Iterable[list[str]]:
    """Make a table for each peer: its time as a multiple of ours."""
    for peer in dict.fromkeys(record["peer"] for record in records):
        theirs = [record for record in records if record["peer"] == peer]
        known = _by_loss(theirs)
        batches = sorted({record["batch"] for record in theirs})
        lines = [f"| {peer} | tfdml | " + _join(f"B = {b}" for b in batches)]
        lines.append("| --- | --- |" + " ---: |" * len(batches))
        cases = dict.fromkeys((r["peer_case"], r["loss"]) for r in theirs)
        for case, loss in cases:
            cells = (
                _multiple(known.get((loss, b)), ours.get((loss, b))) for b in batches
            )
            lines.append(f"| {case} | {loss} | {_join(cells)}")
        yield lines


def _multiple(theirs: Record | None, ours: Record | None) -> str:
    if theirs is None:
        return ""
    if "peer_over" in theirs:
        return f"over {theirs['peer_over']}"
    if "error" in theirs or ours is None or "error" in ours:
        return "error"
    return f"{theirs['peer_ms']:.1f} ms, {theirs['peer_ms'] / ours['ms']:.1f} x"


def _memory_table(records: list[Record]) -> Iterable[list[str]]:
    if not records:
        return
    batch = records[0]["batch"]
    lines = [_about(records), "", f"| peak at B = {batch} | B x B | own |"]
    lines.append("| --- | ---: | ---: |")
    for record in {record["loss"]: record for record in records}.values():
        own = record["matrices"] / record["own_size"]
        lines.append(f"| {record['loss']} | {record['matrices']:.1f} | {own:.1f} |")
    yield lines


def _about(records: list[Record]) -> str:
    keys = ("backend", "device", "threads", "dimension", "date")
    return ", ".join(
        f"{key} {' and '.join(sorted({str(r[key]) for r in records if key in r}))}"
        for key in keys
        if any(key in record for record in records)
    )


def _by_loss(records: Iterable[Record]) -> dict[tuple[str, int], Record]:
    return {(record["loss"], record["batch"]): record for record in records}


def _join(cells: Iterable[str]) -> str:
    return " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
