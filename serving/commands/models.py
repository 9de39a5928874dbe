"""`export`, `combine` and `run`: a model is written for serving, and served."""

import argparse
import sys
from typing import Any

from serving.endpoint.options import add_options, options_of


def add_models(commands: Any) -> None:
    """Add the commands."""
    _add_export(commands)
    _add_combine(commands)
    serve = commands.add_parser("run", help="serve a model by TF Serving's protocols")
    add_options(serve)
    serve.set_defaults(run_command=_run)


def _add_export(commands: Any) -> None:
    export = commands.add_parser("export", help="write the model of a run for serving")
    export.add_argument("run", help="run folder, or a .keras file")
    export.add_argument(
        "destination", help="MODEL_BASE_PATH/VERSION, such as models/x/1"
    )
    export.add_argument(
        "--output-dtype",
        choices=("float32", "float16", "int8"),
        default="float32",
        help="add a signature with embeddings of this type; default: float32, none",
    )
    export.add_argument(
        "--warm-up",
        metavar="IMAGES",
        help="folder of images, or one, for the warm-up requests; default: images "
        "that the run trained on",
    )
    export.add_argument(
        "--warm-up-count",
        type=int,
        default=8,
        help="how many images the warm-up requests hold; default: 8, 0 for no requests",
    )
    export.set_defaults(run_command=_export)


def _add_combine(commands: Any) -> None:
    combine = commands.add_parser(
        "combine", help="join a model and an index into one that searches with ScaNN"
    )
    combine.add_argument("model", help="MODEL_BASE_PATH/VERSION, what `export` wrote")
    combine.add_argument("index", help="what `index build` wrote with that version")
    combine.add_argument(
        "destination", help="MODEL_BASE_PATH/VERSION, such as models/x-search/1"
    )
    combine.add_argument(
        "--neighbors", type=int, default=10, help="images a query finds; default: 10"
    )
    combine.set_defaults(run_command=_combine)


def _export(parsed: argparse.Namespace) -> None:
    from serving.export.exporting import export_run

    report = export_run(
        parsed.run,
        parsed.destination,
        output_dtype=parsed.output_dtype,
        warm_up_images=parsed.warm_up,
        warm_up_count=parsed.warm_up_count,
    )
    print(report)
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _combine(parsed: argparse.Namespace) -> None:
    from serving.export.combined import combine

    print(
        combine(
            parsed.model, parsed.index, parsed.destination, neighbors=parsed.neighbors
        )
    )


def _run(parsed: argparse.Namespace) -> None:
    from serving.web.log import configure

    options = options_of(parsed)
    # Not before the options are checked: TensorFlow takes seconds.
    from serving.endpoint.run import run

    configure(options.log_format)
    run(options)
