"""Measure what metrics cost: CPU time of a search with `--metrics` and without.

A page with metrics and two without are searched in turn: how far the two are apart is
the noise. The calls of the metrics are less than that on a machine that others use, so
they are timed by themselves, too.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import psutil

from benchmarks.search.example_images import CLASSES, draw_image, write_gallery
from benchmarks.search.page_process import build_index, running_page
from benchmarks.serving.model import MODELS, export_model
from benchmarks.serving.process import NAME, running_server
from benchmarks.session import machine, use_threads, write
from serving.search.app.metrics import SearchMetrics, stages_of
from serving.search.gallery.items import Hit, Item
from serving.web.log import RequestRecord
from serving.web.status import StatusCode

GOAL = 0.01
_WARM_UP = 100
_CALLS = 2_000
_PAGES = ("without", "with", "control")  # the last is without, too
# What a search has: a search by id is not decoded and embedded.
_STAGES = {"image": ("decode", "embed", "index"), "id": ("index",)}


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--images", type=int, default=1_000, help="in the gallery (1000)")
    add("--rounds", type=int, default=12, help="in which each page has a turn (12)")
    add("--searches", type=int, default=60, help="of each kind in a turn (60)")
    add("--model", choices=MODELS, default="demo")
    add("--threads", type=int, default=2, help="CPU cores to use, by all (2)")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; the exit status does not judge the times."""
    use_threads(options.threads)
    about = {**machine(), "threads": options.threads, "model": options.model}
    print(about, flush=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        export_model(options.model, folder / "models" / "1")
        write_gallery(folder / "images", options.images)
        build_index(folder / "images", folder / "index", folder / "models")
        query = folder / "query.jpg"
        draw_image(query, options.images, 7 % CLASSES)
        server = stack.enter_context(running_server(folder / "models"))
        url = f"http://{server.rest_address}/v1/models/{NAME}"
        pages = {
            name: stack.enter_context(
                _page(folder / "index", url, query.read_bytes(), name == "with")
            )
            for name in _PAGES
        }
        rounds = []
        for number in range(options.rounds):
            # In turn: what the machine does besides falls on all of them.
            turns = [_PAGES[(number + place) % 3] for place in range(3)]
            taken = {each: pages[each].turn(options.searches) for each in turns}
            for kind in _STAGES:
                record = {
                    "benchmark": "search_metrics",
                    "images": options.images,
                    "kind": kind,
                    "round": number,
                    "searches": options.searches,
                    **{f"{each}_ms": taken[each][kind] for each in _PAGES},
                    "calls_ms": calls_ms(kind),
                }
                rounds.append(record)
                write(options.out, {**about, **record})
    print(summary(rounds), flush=True)
    return 0


def calls_ms(kind: str) -> float:
    """Return the milliseconds of CPU that the metrics of a search take.

    Args:
        kind: "image" or "id".
    """
    searches: dict[str, Any] = {"index": SimpleNamespace(index=None)}
    metrics = SearchMetrics(searches)
    stage = stages_of(metrics, None)
    embedding = np.zeros(128, np.float32)
    hits = [Hit(Item("0", {}), 1.0, True)]
    record = RequestRecord(
        "0", "REST", "search", None, None, StatusCode.OK, 0.005, 20_000, "127.0.0.1"
    )
    start = time.thread_time()
    for _ in range(_CALLS):
        for name in _STAGES[kind]:
            with stage(name):
                pass
        metrics.recall.keep("index", embedding)
        metrics.answered("index", hits)
        metrics.count(record)
    return 1000 * (time.thread_time() - start) / _CALLS


class _Page:
    """A page that is searched; its own CPU time is taken, not that of its clients."""

    def __init__(self, address: str, process: int, image: bytes) -> None:
        self._client = httpx2.Client(base_url=address, timeout=60)
        self._process = psutil.Process(process)
        self._image = image
        listed = self._get("/api/images", limit=1)
        self._id = listed.json()["images"][0]["id"]
        for _ in range(_WARM_UP):
            self._by_image()
            self._by_id()

    def turn(self, searches: int) -> dict[str, float]:
        """Search; returns the milliseconds of CPU of a search, by its kind."""
        found = {}
        for kind, search in (("image", self._by_image), ("id", self._by_id)):
            start = self._cpu_seconds()
            for _ in range(searches):
                search()
            found[kind] = 1000 * (self._cpu_seconds() - start) / searches
        return found

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _by_image(self) -> None:
        files = {"image": ("query.jpg", self._image)}
        self._client.post("/api/search", files=files).raise_for_status()

    def _by_id(self) -> None:
        self._get("/api/similar", id=self._id)

    def _get(self, path: str, **fields: str | int) -> httpx2.Response:
        return self._client.get(path, params=fields).raise_for_status()

    def _cpu_seconds(self) -> float:
        used = self._process.cpu_times()
        return used.user + used.system


@contextmanager
def _page(index: Path, url: str, image: bytes, is_counting: bool) -> Iterator[_Page]:
    options = ("--metrics",) if is_counting else ()
    with running_page(index, url, *options) as (address, process):
        page = _Page(address, process, image)
        try:
            yield page
        finally:
            page.close()


def summary(rounds: Sequence[dict[str, Any]]) -> str:
    """Make a table of medians over the rounds; ratios are those of each round."""
    lines = [
        "| search by | CPU without metrics | with, as a ratio | the other without, as "
        "a ratio | calls of the metrics | share |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in dict.fromkeys(each["kind"] for each in rounds):
        own = [each for each in rounds if each["kind"] == kind]
        without = statistics.median(each["without_ms"] for each in own)
        calls = statistics.median(each["calls_ms"] for each in own)
        lines.append(
            f"| {kind} | {without:.2f} ms | {_ratio(own, 'with_ms')} "
            f"| {_ratio(own, 'control_ms')} | {calls:.3f} ms | {calls / without:.2%} |"
        )
    lines.append(f"The goal is a share below {GOAL:.0%}.")
    return "\n".join(lines)


def _ratio(rounds: Sequence[dict[str, Any]], key: str) -> str:
    ratios = sorted(each[key] / each["without_ms"] for each in rounds)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
