"""Measure training in its phases, from files to steps, and PyTorch beside it.

    KERAS_BACKEND=jax python -m benchmarks.training

The step alone on a batch on the device, `fit` on one batch in host memory, crops and
whole batches alone, and all together as `python -m training fit` runs it: AdamW,
multi-similarity with mining, random-resized crops and flips, batches of classes. The
peer reads the same files with a DataLoader of as many workers as there are cores, and
trains the same network with pytorch-metric-learning. On a machine with a GPU that is
ResNet-50 on 224 pixels in mixed bfloat16; otherwise all is smaller, to take minutes.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.image_files import write_images
from benchmarks.session import bare_parser, cores_here, processor, today, write
from benchmarks.training.settings import BACKBONES, Settings
from benchmarks.training.table import table
from benchmarks.usage import Usage, gpu_count
from benchmarks.workers import interpreter_with, records_of

_ON_GPU = {"images": 10_000, "image_size": 224, "embedding": 512, "classes": 32}
_ON_CPU = {"images": 400, "image_size": 64, "embedding": 64, "classes": 8}
_OF_MACHINE = {
    True: _ON_GPU | {"steps": 50, "precision": "mixed_bfloat16"},
    False: _ON_CPU | {"steps": 5, "precision": "float32"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    peer = None
    if not options.no_peer:
        peer = interpreter_with("pml", "torchvision", "pytorch_metric_learning")
        if peer is None:
            sys.exit(
                "There is no PyTorch with pytorch-metric-learning: `make bench-peers` "
                "installs it, `--no-peer` goes without."
            )
    cores = cores_here()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, Usage() as usage:
        folder = options.folder or Path(temporary) / "images"
        write_images(folder, options.images, processes=cores)
        settings = Settings(
            folder=str(folder.resolve()),
            backbone=options.backbone,
            image_size=options.image_size,
            embedding=options.embedding,
            classes_per_batch=options.classes_per_batch,
            images_per_class=options.images_per_class,
            precision=options.precision,
            steps=options.steps,
            rounds=options.rounds,
            workers=cores,
        )
        about = {"processor": processor(), "cores": cores, "date": today()}
        about |= {"images": options.images, "batch": settings.batch}
        runs = {"tfdml": (sys.executable, "ours")}
        if peer is not None:
            runs["PyTorch"] = (peer, "with_torch")
        # Empty, so that the first step is compiled and later ones are taken from it.
        variables = {"JAX_COMPILATION_CACHE_DIR": str(Path(temporary) / "compiled")}
        for library, (python, module) in runs.items():
            command = [
                *(python, "-m", f"benchmarks.training.{module}"),
                settings.written,
            ]
            for record in records_of(
                command, usage, cores, seconds=options.limit, variables=variables
            ):
                found.append({"library": library, **record})
                write(options.out, {**found[-1], **about})
                print(_line(found[-1]), flush=True)
    print("\n" + "\n".join(table(found)))
    return int(any("error" in record for record in found))


def _line(record: dict[str, Any]) -> str:
    """Show a record while others are measured."""
    shown = {
        key: f"{value:,.3g}" if isinstance(value, float) and value < 100 else value
        for key, value in record.items()
        if key not in ("library", "phase", "rate")
    }
    rate = f" {record['rate']:,.0f} images per second" if "rate" in record else ""
    return f"{record['library']}, {record.get('phase', 'failed')}:{rate} {shown}"


def _options(arguments: Sequence[str] | None) -> Any:
    usual = _OF_MACHINE[bool(gpu_count())]
    made = bare_parser("training", __doc__)
    add = made.add_argument

    def add_number(name: str, key: str, what: str) -> None:
        add(name, type=int, default=usual[key], help=f"{what} ({usual[key]})")

    add_number("--images", "images", "JPEG files to read")
    add_number("--image-size", "image_size", "side of the crops in pixels")
    add_number("--embedding", "embedding", "dimension of the embeddings")
    add_number("--classes-per-batch", "classes", "of a batch")
    add_number("--steps", "steps", "of a round; of an epoch of `fit`")
    add("--images-per-class", type=int, default=4, help="of a batch (4)")
    add("--rounds", type=int, default=3, help="of which the median counts (3)")
    add(
        "--backbone",
        default="ResNet50",
        choices=(*BACKBONES, "residual"),
        help="network with random weights (ResNet50); residual needs --no-peer",
    )
    add(
        "--precision",
        default=usual["precision"],
        choices=("mixed_bfloat16", "float32"),
        help=f"of the steps ({usual['precision']})",
    )
    add("--folder", type=Path, help="write the files there and keep them")
    add("--no-peer", action="store_true", help="ours alone")
    add("--limit", type=float, default=1800, help="seconds for each library (1800)")
    options = made.parse_args(arguments)
    if options.backbone == "residual" and not options.no_peer:
        made.error("--backbone residual has no peer: add --no-peer")
    return options


if __name__ == "__main__":
    sys.exit(main())
