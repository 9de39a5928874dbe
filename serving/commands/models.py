"""`export`, `combine` and `serve`: write a model for serving, and serve it."""

import argparse
import sys
from typing import Any

from ..endpoint.options import add_options, options_of


def add_models(commands: Any) -> None:
    """Add the commands."""
    _add_export(commands)
    _add_combine(commands)
    serve = commands.add_parser(
        "serve", aliases=["run"], help="serve a model with TF Serving's protocols"
    )
    add_options(serve)
    serve.set_defaults(run_command=_run)


def _add_export(commands: Any) -> None:
    export = commands.add_parser("export", help="write the model of a run for serving")
    export.add_argument("run", help="run folder, or a .keras file")
    export.add_argument(
        "destination",
        help="MODEL_BASE_PATH/VERSION, such as models/x/1; for onnx and litert a file, "
        "such as x.onnx or x.tflite",
    )
    export.add_argument(
        "--format",
        choices=("saved_model", "onnx", "litert"),
        default="saved_model",
        help="a SavedModel for servers, or one file for another runtime; default: "
        "saved_model",
    )
    export.add_argument(
        "--output-dtype",
        choices=("float32", "float16", "int8"),
        default="float32",
        help="add a signature that returns embeddings of this type; default: float32, "
        "which adds none",
    )
    export.add_argument(
        "--dimensions",
        type=int,
        metavar="N",
        help="return only the first N numbers of each embedding; default: all",
    )
    export.add_argument(
        "--text-tower",
        metavar="FILE",
        help=".keras file of a model from texts to embeddings that was trained "
        "together with this one; searches then take texts, too",
    )
    export.add_argument(
        "--warm-up",
        metavar="IMAGES",
        help="folder of images, or one image, for the warm-up requests; default: "
        "training images of the run",
    )
    export.add_argument(
        "--warm-up-count",
        type=int,
        default=8,
        help="images in the warm-up requests; default: 8; 0 for no requests",
    )
    export.set_defaults(run_command=_export, job="export")


def _add_combine(commands: Any) -> None:
    combine = commands.add_parser(
        "combine",
        help="combine a model and an index into a model that searches with ScaNN",
    )
    combine.add_argument("model", help="MODEL_BASE_PATH/VERSION that `export` wrote")
    combine.add_argument("index", help="index that `index build` built with it")
    combine.add_argument(
        "destination", help="MODEL_BASE_PATH/VERSION, such as models/x-search/1"
    )
    combine.add_argument(
        "--neighbors", type=int, default=10, help="neighbors per query; default: 10"
    )
    combine.set_defaults(run_command=_combine, job="combine")


def _export(parsed: argparse.Namespace) -> None:
    if parsed.format != "saved_model":
        _export_file(parsed)
        return
    from ..export.exporting import export_run

    report = export_run(
        parsed.run,
        parsed.destination,
        output_dtype=parsed.output_dtype,
        dimensions=parsed.dimensions,
        text_tower=parsed.text_tower,
        warm_up_images=parsed.warm_up,
        warm_up_count=parsed.warm_up_count,
    )
    print(report)
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _export_file(parsed: argparse.Namespace) -> None:
    for option, value in (
        ("--output-dtype", parsed.output_dtype != "float32"),
        ("--text-tower", parsed.text_tower is not None),
        ("--warm-up", parsed.warm_up is not None),
    ):
        if value:
            raise ValueError(
                f"{option} must not be given with --format {parsed.format}: it is only "
                "for a SavedModel."
            )
    from ..export.export_to_file import export_run_to_file

    report = export_run_to_file(
        parsed.run, parsed.destination, parsed.format, dimensions=parsed.dimensions
    )
    print(report)
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _combine(parsed: argparse.Namespace) -> None:
    from ..export.combined import combine

    print(
        combine(
            parsed.model, parsed.index, parsed.destination, neighbors=parsed.neighbors
        )
    )


def _run(parsed: argparse.Namespace) -> None:
    from ..web.log import configure
    from ..web.sockets import exit_on_sigterm

    options = options_of(parsed)
    exit_on_sigterm()
    # Not before the options are checked: TensorFlow takes seconds.
    from ..endpoint.run import run

    configure(options.log_format)
    run(options)
