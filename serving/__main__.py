"""`python -m serving`: export a model, serve it, index images, search them."""

import argparse
import sys
from pathlib import Path

from tfdml.command_line import run_command

__all__ = ["main"]

ENDPOINT = "http://127.0.0.1:8501/v1/models/NAME"


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m serving", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    export = commands.add_parser("export", help="write the model of a run for serving")
    export.add_argument("run", help="run folder, or a .keras file")
    export.add_argument(
        "destination", help="MODEL_BASE_PATH/VERSION, such as models/x/1"
    )
    export.set_defaults(run_command=_export)

    run = commands.add_parser("run", help="serve a model by TF Serving's protocols")
    run.add_argument("--model-name", required=True, help="name in the addresses")
    run.add_argument(
        "--model-base-path", required=True, help="folder of numbered versions"
    )
    _add_address(run, 8501)
    _add_grpc(run)
    run.set_defaults(run_command=_run)

    index = commands.add_parser("index", help="embed a folder of images for search")
    index.add_argument("images", help="folder of images, class/image")
    index.add_argument("index", help="where the index, or the shard of it, goes")
    index.add_argument("--model", required=True, help="folder of numbered versions")
    index.add_argument("--only", help="text file: the images to index, a path a line")
    index.add_argument("--batch-size", type=int, default=64, help="images a batch")
    index.add_argument(
        "--skip-unreadable", action="store_true", help="list broken files, go on"
    )
    index.add_argument(
        "--shard", metavar="NUMBER/COUNT", help="embed this part alone, such as 2/8"
    )
    index.set_defaults(run_command=_index)

    merge = commands.add_parser("merge", help="build an index of all its shards")
    merge.add_argument("index", help="where the index goes")
    merge.add_argument("shards", nargs="+", help="what `index --shard` wrote, each one")
    merge.set_defaults(run_command=_merge)

    search = commands.add_parser("search", help="serve the search page of an index")
    search.add_argument("index", help="what `index` wrote")
    search.add_argument("--endpoint", required=True, help=f"such as {ENDPOINT}")
    search.add_argument("--images", help="folder of the images, if it was moved")
    _add_address(search, 8000)
    search.set_defaults(run_command=_search)

    demo = commands.add_parser("demo", help="serve a run's model and its search page")
    demo.add_argument("run", help="run folder, for what it measured")
    demo.add_argument("index", help="what `index` wrote")
    demo.add_argument("--model", required=True, help="folder of numbered versions")
    demo.add_argument("--endpoint-port", type=int, default=8501)
    _add_address(demo, 8000)
    demo.set_defaults(run_command=_demo)
    return parser


def _add_address(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=port, help=f"default: {port}")


def _add_grpc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grpc-port",
        type=int,
        default=8500,
        help="default: 8500; 0 for any free one, which is printed",
    )
    parser.add_argument(
        "--no-grpc", action="store_true", help="answer REST calls alone"
    )
    parser.add_argument(
        "--grpc-message-bytes",
        type=int,
        default=64 * 2**20,
        help="longest gRPC message, in both directions; default: 64 MiB",
    )
    parser.add_argument(
        "--grpc-calls",
        type=int,
        default=64,
        help="gRPC calls taken at one time; default: 64",
    )


def _export(parsed: argparse.Namespace) -> None:
    destination = Path(parsed.destination)
    if not destination.name.isdecimal() or int(destination.name) < 1:
        raise ValueError(
            "The destination must end with a version number of at least 1, such as "
            f"models/emoji/1. Received: {destination}."
        )
    source = Path(parsed.run)
    if source.is_dir():
        source = source / "embedder.keras"
    if not source.is_file():
        raise ValueError(f"There is no trained embedder at {source}.")
    from serving.run_folder import view_of_run
    from serving.saved_calibration import calibration_of_run, save_calibration
    from tfdml.embedder import load_embedder
    from tfdml.export import export_embedder

    calibration = calibration_of_run(source)
    embedder = load_embedder(source)
    view = view_of_run(source.parent, embedder.input_shape[1])
    export_embedder(embedder, destination, view)
    if calibration is not None:
        save_calibration(destination, calibration)
    print(f"Exported {source} to {destination}.")
    if calibration is not None:
        print(calibration)
    if not (source.parent / "recipe.json").is_file():
        print(
            "warning: there is no recipe.json beside the embedder, which tells what it "
            "sees of a picture; pictures are squashed. Export the run folder if it "
            "was trained otherwise.",
            file=sys.stderr,
        )


def _run(parsed: argparse.Namespace) -> None:
    from serving.endpoint import run

    run(
        parsed.model_name,
        parsed.model_base_path,
        host=parsed.host,
        port=parsed.port,
        grpc_port=None if parsed.no_grpc else parsed.grpc_port,
        max_message_bytes=parsed.grpc_message_bytes,
        max_concurrent_calls=parsed.grpc_calls,
    )


def _index(parsed: argparse.Namespace) -> None:
    from serving.indexing import embed_shard, index_images
    from serving.shards import Part

    options = {
        "only": parsed.only,
        "batch_size": parsed.batch_size,
        "skip_unreadable": parsed.skip_unreadable,
    }
    where = parsed.images, parsed.index, parsed.model
    if parsed.shard is None:
        print(index_images(*where, **options))
    else:
        print(embed_shard(*where, Part.parse(parsed.shard), **options))


def _merge(parsed: argparse.Namespace) -> None:
    from serving.indexing import merge_shards

    print(merge_shards(parsed.index, parsed.shards))


def _search(parsed: argparse.Namespace) -> None:
    from serving.page import run

    run(
        parsed.index,
        parsed.endpoint,
        host=parsed.host,
        port=parsed.port,
        images=parsed.images,
    )


def _demo(parsed: argparse.Namespace) -> None:
    from serving.demo import run

    run(
        parsed.run,
        parsed.index,
        parsed.model,
        host=parsed.host,
        port=parsed.port,
        endpoint_port=parsed.endpoint_port,
    )


if __name__ == "__main__":
    sys.exit(main())
