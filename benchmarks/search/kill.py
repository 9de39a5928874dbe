"""Kill changes at random moments, and count what was acknowledged and lost."""

import argparse
import collections
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.search.killed_index import CHANGES, kill_at_random
from benchmarks.session import machine, write

_KINDS = ("ExactIndex", "LocalIndex")
_FIRST_SECONDS = 0.005
_MOST_CHANGES = 60  # that return before one is killed
_BETWEEN = "between two"
_MOST_EXAMPLES = 20


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    add("--times", type=int, default=50, help="that each kind is killed (50)")
    add("--seed", type=int, default=0, help="of changes and moments (0)")
    add("--folder", type=Path, help="on the disk to use; by default a temporary one")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if something was lost or unreadable."""
    about = machine()
    print(about, flush=True)
    records = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for record in kills(Path(folder), kind, options.times, options.seed):
                records.append(record)
                write(options.out, {**about, **record})
                print(
                    f"{kind} {record['number']}: at {record['during']}, fell in "
                    f"{record['fell']}, {record['acknowledged']} changes, "
                    f"{record['items']} items, {len(record['lost'])} lost",
                    flush=True,
                )
    for record in records:
        for said in filter(None, [*record["lost"][:_MOST_EXAMPLES], record["error"]]):
            print(f"{record['kind']} {record['number']}: {said}")
    print(summary(records))
    return int(any(record["lost"] or record["error"] for record in records))


def kills(folder: Path, kind: str, times: int, seed: int) -> Iterator[dict[str, Any]]:
    """Change an index, kill it, load it and go on with it, again and again.

    Each kind of change is aimed at in turn. The moment is drawn from as long as such
    a change takes; what a kill then falls in may be the next one.

    Args:
        folder: Where indexes are written.
        kind: The class.
        times: How often.
        seed: Of changes and moments.

    Yields:
        A record for each kill: what it was aimed at (`during`), what it `fell` in,
        how many changes had returned, `lost` (a sentence for each item that is not as
        it should be) and `error`, why the index cannot be loaded, or "".
    """
    draw = random.Random(f"{seed} {kind}")  # noqa: S311
    took: dict[str, list[float]] = {name: [] for name in CHANGES}
    names = list(CHANGES)
    items: dict[int, int] = {}
    broken = 0
    for number in range(times):
        during = names[number % len(names)]
        usual = statistics.median(took[during] or [_FIRST_SECONDS])
        killed = kill_at_random(
            folder / f"index-{broken}",
            draw.uniform(0, usual),
            draw.randrange(2**31),
            kind=kind,
            items=items,
            changes=draw.randrange(_MOST_CHANGES),
            during=during,
        )
        for name in names:
            took[name] += killed.seconds.get(name, [])
        items = killed.items
        if killed.unreadable:  # the next one starts over
            broken, items = broken + 1, {}
        yield {
            "benchmark": "search_kill",
            "kind": kind,
            "number": number,
            "during": during,
            "fell": killed.last or _BETWEEN,
            # A load is said as a change is, but changes nothing.
            "acknowledged": killed.acknowledged - 1,
            "items": len(items),
            "lost": killed.lost,
            "error": killed.unreadable,
        }


def summary(records: Sequence[dict[str, Any]]) -> str:
    """Make a table of the records, a line for each class."""
    places = [*CHANGES, _BETWEEN]
    lines = [
        "| index | kills | changes that had returned | lost or wrong items "
        f"| unreadable | {' | '.join(f'fell in {place}' for place in places)} |",
        "| --- |" + (4 + len(places)) * " ---: |",
    ]
    for kind in dict.fromkeys(record["kind"] for record in records):
        own = [record for record in records if record["kind"] == kind]
        fell = collections.Counter(record["fell"] for record in own)
        cells = [
            len(own),
            sum(record["acknowledged"] for record in own),
            sum(len(record["lost"]) for record in own),
            sum(bool(record["error"]) for record in own),
            *(fell[place] for place in places),
        ]
        lines.append(f"| {kind} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(lines)
