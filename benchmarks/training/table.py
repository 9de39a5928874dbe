"""Make a table of what `benchmarks.training` measured, and its ratios."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.training.settings import PHASES

Record = dict[str, Any]
Medians = Mapping[tuple[str, str], Mapping[str, float]]

OURS = "tfdml"
_PEERS = {"Pillow": "PyTorch, Pillow", "tensor": "PyTorch, tensors"}
_VALUES = (
    "rate",
    "gpu_util",
    "cpu_util",
    "seconds",
    "epoch_end_seconds",
    "epoch_seconds",
)
_STEP, _READING = "step", "reading, "
_WHOLE = {"files": "end to end, files", "cache": "end to end, cache"}


def table(records: Sequence[Record]) -> list[str]:
    """Make a table of medians with the use of GPU and processor, then ratios.

    Args:
        records: What was told, each with the `library` that it is of.

    Returns:
        Lines of Markdown.
    """
    medians = _medians(records)
    columns = [c for c in (OURS, *_PEERS.values()) if any(k[0] == c for k in medians)]
    lines = [
        "| images per second | " + " | ".join(columns) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for phase, name in PHASES.items():
        cells = [_cell(medians.get((column, phase))) for column in columns]
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    seconds = {
        "first step, s": "first step",
        "first step of the next run, s": "end to end, files, first step",
    }
    for name, phase in seconds.items():
        cells = [
            f"{found['seconds']:.1f}" if (found := medians.get((column, phase))) else ""
            for column in columns
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, "", *_ratios(medians)]


def _ratios(medians: Medians) -> Iterator[str]:
    def rate(library: str, phase: str) -> float | None:
        return medians.get((library, phase), {}).get("rate")

    for source, whole in _WHOLE.items():
        ours = rate(OURS, whole)
        if ours is None:
            continue
        step, reading = rate(OURS, _STEP), rate(OURS, _READING + source)
        if step and reading:
            floor = min(step, reading)
            limit = "step" if step < reading else "reading"
            yield (
                f"- end to end from {source}: {ours / floor:.0%} of the {limit} alone, "
                "which is the slower part"
            )
        end = medians[OURS, whole].get("epoch_end_seconds")
        if end is not None:
            share = end / medians[OURS, whole]["epoch_seconds"]
            yield f"- end of an epoch: {end:.2f} s, {share:.1%} of it"
    for peer in _PEERS.values():
        for name, phase in (
            ("step alone", _STEP),
            ("crops alone", _READING + "files"),
            ("end to end from files", _WHOLE["files"]),
        ):
            ours, theirs = rate(OURS, phase), rate(peer, phase)
            if ours and theirs:
                yield f"- {name}: {ours / theirs:.2f} times {peer}"


def _medians(records: Sequence[Record]) -> Medians:
    """Return the median of each value of a phase, by library and phase."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if "phase" not in record:
            continue
        names = [record["library"]]
        if record["library"] != OURS:
            peer = record.get("peer")
            names = [_PEERS[peer]] if peer else list(_PEERS.values())
        for name in names:
            groups.setdefault((name, record["phase"]), []).append(record)
    return {
        group: {
            key: median(values)
            for key in _VALUES
            if (values := [r[key] for r in found if key in r])
        }
        for group, found in groups.items()
    }


def _cell(found: Mapping[str, float] | None) -> str:
    if not found or "rate" not in found:
        return ""
    busy = [
        f"{name} {found[key]:.0%}"
        for name, key in (("GPU", "gpu_util"), ("CPU", "cpu_util"))
        if key in found
    ]
    return f"{found['rate']:,.0f}" + (f" ({', '.join(busy)})" if busy else "")
