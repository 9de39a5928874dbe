"""Images per second that training reads, by our way and by others, on 1 core and more.

    python -m benchmarks.reading

Random-resized crops `[128, 224, 224, 3]` in uint8 of the same batches of the same JPEG
files. Each way runs in a process, and where it has one in an environment, of its own
(`make bench-peers` creates them).
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.image_files import write_images
from benchmarks.reading.measured import Settings
from benchmarks.session import bare_parser, cores_here, processor, today, write
from benchmarks.usage import Usage
from benchmarks.workers import interpreter_with, records_of

WAYS = {
    "decode alone, threads": ("with_threads:decode", None),
    "processes that keep what they read": ("with_threads:processes", None),
    "tfdml, files": ("with_tfdml:files", None),
    "tfdml, files, always processes": ("with_tfdml:processes", None),
    "tfdml, cache": ("with_tfdml:cache", None),
    "threads": ("with_threads:threads", None),
    "Grain": ("with_grain", ("grain", "grain")),
    "tf.data": ("with_tf_data", ("", "tensorflow")),
    "torchvision, Pillow": ("with_torch:Pillow", ("pml", "torchvision")),
    "torchvision, tensors": ("with_torch:tensor", ("pml", "torchvision")),
}
"""The module and what it is told, then the environment and the package it needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if unknown := set(options.only) - set(WAYS):
        sys.exit(f"`--only` must name some of {list(WAYS)}. Received: {unknown}.")
    found = []
    failed = False
    with tempfile.TemporaryDirectory() as temporary, Usage() as usage:
        folder = options.folder or Path(temporary) / "images"
        write_images(folder, options.images, processes=max(options.cores))
        settings = Settings(
            str(folder.resolve()),
            tuple(options.cores),
            options.image_size,
            options.classes_per_batch,
            options.images_per_class,
            options.rounds,
            options.seconds,
        )
        about = {"device": processor(), "date": today(), "images": options.images}
        for name in options.only:
            module, needs = WAYS[name]
            python = interpreter_with(*needs) if needs else sys.executable
            if python is None:
                print(f"{name}: left out, `make bench-peers` installs it.")
                continue
            command = [
                *(python, "-m", "benchmarks.reading.measured"),
                *(module, settings.written),
            ]
            for record in records_of(command, usage, 1, seconds=options.limit):
                failed |= "error" in record
                found.append({"name": name, **record, **about})
                write(options.out, found[-1])
                if "error" in record:
                    print(f"{name}: {record['error']}")
    print("\n".join(table(found)))
    return int(failed)


def table(records: Sequence[dict[str, Any]]) -> list[str]:
    """Make a table of the medians: a line for each way, a column for so many cores."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        if "rate" in record:
            groups.setdefault((record["name"], record["cores"]), []).append(record)
    cores = sorted({cores for _, cores in groups})
    lines = [
        "| images per second, of N cores | " + " | ".join(map(str, cores)) + " |",
        "| --- |" + " ---: |" * len(cores),
    ]
    for name in dict.fromkeys(name for name, _ in groups):
        cells = (_cell(groups.get((name, n), [])) for n in cores)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _cell(records: Sequence[dict[str, Any]]) -> str:
    if not records:
        return ""
    rate = median(record["rate"] for record in records)
    busy = [record["cpu_util"] for record in records if "cpu_util" in record]
    return f"{rate:,.0f}" + (f" ({median(busy):.0%})" if busy else "")


def _options(arguments: Sequence[str] | None) -> Any:
    made = bare_parser("reading", __doc__)
    add = made.add_argument
    available = cores_here()
    usual = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < available] + [available]
    add("--only", nargs="+", metavar="WAY", default=list(WAYS), help=", ".join(WAYS))
    add("--images", type=int, default=2000, help="files to read (2000)")
    add("--folder", type=Path, help="write the files there and keep them")
    add("--cores", type=int, nargs="+", default=usual, help=f"to use ({usual})")
    add("--image-size", type=int, default=224, help="side of the crops (224)")
    add("--classes-per-batch", type=int, default=32, help="(32)")
    add("--images-per-class", type=int, default=4, help="of a batch (4)")
    add("--rounds", type=int, default=3, help="the median counts (3)")
    add("--seconds", type=float, default=1.0, help="of a round, at least (1)")
    add("--limit", type=float, default=900, help="seconds for one way (900)")
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
