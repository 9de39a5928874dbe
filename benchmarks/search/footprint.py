"""Memory and time of a process that opens an index and answers a search."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.search.sets import SETS, draw, scaled
from benchmarks.session import machine, use_threads, write

ROOT = Path(__file__).parents[2]

# All that `python -m serving page` imports, without the sockets.
_SEARCH = """
import json, sys, time
from benchmarks.peak import peak_bytes, resident_bytes
from serving.search.app.app import create_app
from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.query import Member, Query

class NoModel:
    url = "none"
    def close(self):
        pass

start = time.perf_counter(), time.process_time()
with ImageSearch(*load_gallery(sys.argv[1]), NoModel()) as search:
    create_app(search)
    assert len(search.nearest(Query(Member("0/0.jpg"), 10))) == 10
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    print(json.dumps({
        "resident_megabytes": resident_bytes() / 2**20,
        "peak_megabytes": peak_bytes() / 2**20,
        "seconds": seconds[0],
        "cpu_seconds": seconds[1],
        "tensorflow": "tensorflow" in sys.modules,
    }))
"""


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--sets", nargs="+", choices=SETS, default=["clustered"], help="(clustered)")
    add("--scale", type=float, default=1, help="share of the items of a set (1)")
    add("--threads", type=int, default=2, help="CPU cores to use (2)")


def run(options: argparse.Namespace) -> int:
    """Build, measure, print and write."""
    use_threads(options.threads)
    about = {**machine(), "threads": options.threads}
    print(about, flush=True)
    for name in options.sets:
        record = {**about, "set": name, **footprint(name, options.scale)}
        write(options.out, record)
        print(
            f"{name}: {record['items']} x {record['dimension']}, "
            f"{record['index']}: {record['resident_megabytes']:.0f} MB resident, "
            f"peak {record['peak_megabytes']:.0f} MB, {record['seconds']:.2f} s to the "
            f"first answer ({record['cpu_seconds']:.2f} s of CPU time), "
            f"{'with' if record['tensorflow'] else 'without'} TensorFlow"
        )
    return 0


def footprint(name: str, scale: float = 1) -> dict[str, Any]:
    """Build an index of a set, and measure a process that searches it."""
    from serving.search.gallery.gallery import Gallery, class_attributes, save_gallery
    from tfdml.index import LocalIndex

    size = scaled(SETS[name], scale)
    rows, _ = draw(size, 0)
    ids = [f"{number % 1000}/{number}.jpg" for number in range(len(rows))]
    with tempfile.TemporaryDirectory() as place:
        index = LocalIndex.build(rows, ids, class_attributes(ids))
        with index:
            save_gallery(Path(place) / "index", index, Gallery(Path(place), "none", 1))
        done = subprocess.run(
            [sys.executable, "-c", _SEARCH, str(Path(place) / "index")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    described = {"items": size.items, "dimension": size.dimension, "index": str(index)}
    return {**described, **json.loads(done.stdout)}
