"""Measure the page in Chromium: time from a drop to the hits, and bytes loaded."""

import argparse
import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.search.example_images import CLASSES, draw_image, write_gallery
from benchmarks.search.page_process import ROOT, build_index, running_page
from benchmarks.search.visitor import visiting
from benchmarks.serving.model import MODELS, export_model
from benchmarks.serving.process import NAME, running_server
from benchmarks.session import machine, use_threads, write

GOAL_MS = 300
# Of the hits: the service draws them, or has them from the visitor before.
_THUMBNAILS = ("new", "kept")
_TIMES = ("shown_ms", "listed_ms", "search_ms")


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--images", type=int, default=10_000, help="in the gallery (10000)")
    add("--drops", type=int, default=20, help="that are timed, after a first one (20)")
    add("--model", choices=MODELS, default="demo")
    add("--threads", type=int, default=2, help="CPU cores to use, by all (2)")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; the exit status does not judge the times."""
    use_threads(options.threads)
    about = {**machine(), "threads": options.threads, "model": options.model}
    print(about, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_model(options.model, folder / "models" / "1")
        write_gallery(folder / "images", options.images)
        seconds = build_index(folder / "images", folder / "index", folder / "models")
        gallery = {"images": options.images, "build_seconds": seconds}
        files = [folder / "dropped" / f"{n}.jpg" for n in range(options.drops + 1)]
        for number, file in enumerate(files):
            draw_image(file, options.images + number, number % CLASSES)
        with (
            running_server(folder / "models") as server,
            running_page(
                folder / "index", f"http://{server.rest_address}/v1/models/{NAME}"
            ) as (address, _),
        ):
            records = []
            for record in _visits(address, files):
                records.append({**gallery, **record})
                write(options.out, {**about, **records[-1]})
                print(record, flush=True)
    started, *drops = records
    wholes = []
    for kind in _THUMBNAILS:
        whole = _whole([drop for drop in drops if drop["thumbnails"] == kind])
        wholes.append({**gallery, **whole})
        write(options.out, {**about, **wholes[-1]})
    print(summary(started, wholes))
    return 0


def _visits(address: str, files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Drop images on the page, and the same ones for a second visitor."""
    for kind in _THUMBNAILS:
        with visiting(address) as visitor:
            started = visitor.open()
            if kind == _THUMBNAILS[0]:
                yield {
                    "benchmark": "search_page_start",
                    "static_bytes": static_bytes(),
                    **started,
                }
            for number, file in enumerate(files):
                yield {
                    "benchmark": "search_page_drop",
                    "thumbnails": kind,
                    "number": number,
                    # The first one finds nothing warm.
                    "is_counted": number > 0,
                    **visitor.drop(file),
                }


def static_bytes() -> int:
    """Return the size of the files that the page consists of, as they lie there."""
    folder = ROOT / "serving" / "search" / "static"
    files = [file for file in folder.iterdir() if file.suffix != ".yaml"]
    return sum(file.stat().st_size for file in files)


def _whole(drops: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counted = [drop for drop in drops if drop["is_counted"]] or drops
    figures: dict[str, Any] = {
        "benchmark": "search_page",
        "thumbnails": drops[0]["thumbnails"],
        "drops": len(counted),
    }
    for name in _TIMES:
        times = sorted(drop[name] for drop in counted)
        figures[f"{name}_median"] = statistics.median(times)
        # One that was measured, none between two.
        figures[f"{name}_p95"] = times[math.ceil(0.95 * len(times)) - 1]
    figures["first_shown_ms"] = drops[0]["shown_ms"]
    figures["hits"] = min(drop["hits"] for drop in drops)
    return figures


def summary(started: dict[str, Any], wholes: Sequence[dict[str, Any]]) -> str:
    """Make a table of the times, and say the sizes.

    Args:
        started: The record of opening the page.
        wholes: The records of all drops of a visitor.
    """
    names = {
        "search_ms": "the answer of the service",
        "listed_ms": "from the drop until the hits are listed",
        "shown_ms": f"until all their images are shown (goal {GOAL_MS} ms)",
    }
    lines = [
        f"| {started['images']:,} images, {wholes[0]['hits']} hits, "
        f"{wholes[0]['drops']} drops | thumbnails | median | p95 |",
        "| --- | --- | ---: | ---: |",
    ]
    for whole in wholes:
        for name, text in names.items():
            median, p95 = (whole[f"{name}_{part}"] for part in ("median", "p95"))
            lines.append(
                f"| {text} | {whole['thumbnails']} | {median:.0f} ms | {p95:.0f} ms |"
            )
    lines.append(
        f"\nThe first drop of all: {wholes[0]['first_shown_ms']:.0f} ms. The files of "
        f"the page: {started['static_bytes']:,} bytes. Loaded at the start: "
        f"{started['bytes']:,} bytes in {started['requests']} requests: "
        f"{started['page_bytes']:,} page, {started['api_bytes']:,} API, "
        f"{started['image_bytes']:,} images."
    )
    return "\n".join(lines)
