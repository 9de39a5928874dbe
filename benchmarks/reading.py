"""Images a second that training reads, against the decode floor and torchvision."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from benchmarks.peers import ROOT
from benchmarks.session import bare_parser, use_threads, write
from benchmarks.timing import smallest_times
from tfdml.images import View
from training.data.data_set import DataSet
from training.data.images import Images

PEER = ROOT / ".peers" / "pml" / "bin" / "python"
SIZE, RESIZE = 227, 256
WIDTH, HEIGHT = 500, 375
BATCH = 64
_PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket", "ihc", "motorcycle_left")


def main(arguments: list[str] | None = None) -> None:
    parser = bare_parser("reading", __doc__)
    parser.add_argument("--files", type=int, default=128, help="to read (128)")
    parser.add_argument("--threads", type=int, default=2, help="CPU cores to use (2)")
    parser.add_argument(
        "--seconds", type=float, default=40, help="without the peers (40)"
    )
    parser.add_argument("--no-peers", action="store_true", help="ours and floors alone")
    options = parser.parse_args(arguments)
    use_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        files = write_photographs(Path(folder), options.files)
        cases = _cases(files, options.threads)
        everything = range(len(files))
        batches = [everything[i : i + BATCH] for i in everything[::BATCH]]
        functions = {
            (name, batch.start): partial(read, batch)
            for batch in batches
            for name, read in cases.items()
        }
        for function in functions.values():
            function()
        times = smallest_times(functions, options.seconds)
        records: list[dict[str, Any]] = [
            {
                "name": name,
                "rate": 1000 * len(files) / sum(times[name, b.start] for b in batches),
            }
            for name in cases
        ]
        if not options.no_peers:
            records += _peer(Path(folder), options.threads)
    floor = {record["name"]: record["rate"] for record in records}
    decode, resized = floor["decode alone"], floor["decode and resize"]
    print("| images per second | | of decode alone | of decode and resize |")
    print("| --- | ---: | ---: | ---: |")
    for record in records:
        rate = record["rate"]
        print(
            f"| {record['name']} | {rate:.0f} | {rate / decode:.0%} | "
            f"{rate / resized:.0%} |"
        )
        write(options.out, {**record, "threads": options.threads})


def write_photographs(folder: Path, count: int) -> list[Path]:
    """Write JPEGs of 500 x 375 pixels, cut out of the photographs of scikit-image."""
    import skimage

    source = Path(skimage.__file__).parent / "data"
    photographs = [
        Image.open(source / f"{name}.{_ending(name)}") for name in _PHOTOGRAPHS
    ]
    generator = np.random.default_rng(0)
    files = []
    for number in range(count):
        image = photographs[number % len(photographs)].convert("RGB")
        width = min(image.width, image.height * WIDTH / HEIGHT)
        width *= generator.uniform(0.7, 1.0)
        height = width * HEIGHT / WIDTH
        left = generator.uniform(0, image.width - width)
        top = generator.uniform(0, image.height - height)
        box = (left, top, left + width, top + height)
        part = image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS, box)
        files.append(folder / f"{number:05}.jpg")
        part.save(files[-1], quality=90)
    return files


def _ending(name: str) -> str:
    return "jpg" if name == "rocket" else "png"


def _cases(
    files: list[Path], threads: int
) -> dict[str, Callable[[Sequence[int]], object]]:
    """Return what is timed: functions that read the files at some positions."""
    pool = ThreadPoolExecutor(threads)
    count = len(files)
    wide = RESIZE * WIDTH // HEIGHT
    left, top = (wide - SIZE) // 2, (RESIZE - SIZE) // 2

    def decoded(position: int) -> np.ndarray:
        return simplejpeg.decode_jpeg(files[position].read_bytes())

    def resized(position: int) -> np.ndarray:
        small = View(SIZE, RESIZE).reduced(decoded(position))
        return small[top : top + SIZE, left : left + SIZE]

    data = DataSet(
        tuple(files), np.zeros(count, "int64"), np.full(count, "train"), ("all",)
    )

    def images(crop: str, cache_bytes: int) -> Images:
        view = View(SIZE, RESIZE)
        return Images(data, view, crop=crop, cache_bytes=cache_bytes, workers=0)

    return {
        "decode alone": lambda batch: list(pool.map(decoded, batch)),
        "decode and resize": lambda batch: list(pool.map(resized, batch)),
        "tfdml, position": partial(images("position", 0).random, step=0),
        "tfdml, resized": partial(images("resized", 0).random, step=0),
        "tfdml, central": images("none", 0).central,
        "tfdml, position, kept": partial(images("position", 2**30).random, step=0),
        "tfdml, resized, kept": partial(images("resized", 2**30).random, step=0),
        "tfdml, central, kept": images("none", 2**30).central,
    }


def _peer(folder: Path, workers: int) -> list[dict[str, object]]:
    if not PEER.exists():
        sys.exit("There is no torchvision: `make bench-peers` installs it.")
    command = [
        *(str(PEER), "-m", "benchmarks.peer_reading"),
        *(str(folder), str(SIZE), str(RESIZE), str(workers)),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line[:1] == "{"]
    return [
        {"name": f"torchvision, {x['name']}, {x['way']}", "rate": x["rate"]}
        for x in lines
    ]


if __name__ == "__main__":
    main()
