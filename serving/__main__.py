"""`python -m serving`: export a model, serve it, index images, search them."""

import argparse
import sys
from typing import TYPE_CHECKING

from serving.run_options import add_run_options
from tfdml.command_line import run_command

if TYPE_CHECKING:
    from serving.client.credentials import Credentials

__all__ = ["main"]

ENDPOINT = "http://127.0.0.1:8501/v1/models/NAME"
GRPC_ENDPOINT = "grpc://127.0.0.1:8500/NAME"


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

    combine = commands.add_parser(
        "combine", help="join a model and an index into one that searches with ScaNN"
    )
    combine.add_argument("model", help="MODEL_BASE_PATH/VERSION, what `export` wrote")
    combine.add_argument("index", help="what `index` wrote with that version")
    combine.add_argument(
        "destination", help="MODEL_BASE_PATH/VERSION, such as models/x-search/1"
    )
    combine.add_argument(
        "--neighbors", type=int, default=10, help="images a query finds; default: 10"
    )
    combine.set_defaults(run_command=_combine)

    run = commands.add_parser("run", help="serve a model by TF Serving's protocols")
    _add_address(run, 8501)
    add_run_options(run)
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

    embed = commands.add_parser("embed", help="embed a folder through an endpoint")
    embed.add_argument("images", help="folder of images, at any depth")
    embed.add_argument("file", help="NumPy file to write, such as embeddings.npz")
    _add_client(embed)
    embed.add_argument("--batch-size", type=int, default=32, help="images a request")
    embed.add_argument(
        "--concurrency", type=int, default=4, help="requests at one time; default: 4"
    )
    embed.add_argument(
        "--skip-unreadable", action="store_true", help="list broken files, go on"
    )
    embed.set_defaults(run_command=_embed)

    merge = commands.add_parser("merge", help="build an index of all its shards")
    merge.add_argument("index", help="where the index goes")
    merge.add_argument("shards", nargs="+", help="what `index --shard` wrote, each one")
    merge.set_defaults(run_command=_merge)

    search = commands.add_parser("search", help="serve the search page of an index")
    search.add_argument("index", help="what `index` wrote")
    _add_client(search)
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


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--endpoint", required=True, help=f"such as {ENDPOINT} or {GRPC_ENDPOINT}"
    )
    parser.add_argument(
        "--token-file", help="file whose first token is sent to the endpoint"
    )
    parser.add_argument("--ca-file", help="certificates (PEM) that the client trusts")
    parser.add_argument(
        "--certificate-file", help="the client's own certificate (PEM), with --key-file"
    )
    parser.add_argument("--key-file", help="the key (PEM) of that certificate")


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
    from serving.run_options import run

    run(parsed)


def _index(parsed: argparse.Namespace) -> None:
    from serving.search.indexing import embed_shard, index_images
    from serving.search.shards import Part

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


def _embed(parsed: argparse.Namespace) -> None:
    from serving.client.embed_images import embed_images

    report = embed_images(
        parsed.images,
        parsed.file,
        parsed.endpoint,
        batch_size=parsed.batch_size,
        concurrency=parsed.concurrency,
        skip_unreadable=parsed.skip_unreadable,
        credentials=_credentials(parsed),
    )
    print(report)


def _credentials(parsed: argparse.Namespace) -> "Credentials":
    from serving.client.credentials import Credentials, read_token

    return Credentials(
        None if parsed.token_file is None else read_token(parsed.token_file),
        ca_file=parsed.ca_file,
        certificate_file=parsed.certificate_file,
        key_file=parsed.key_file,
    )


def _merge(parsed: argparse.Namespace) -> None:
    from serving.search.indexing import merge_shards

    print(merge_shards(parsed.index, parsed.shards))


def _search(parsed: argparse.Namespace) -> None:
    from serving.search.page import run

    run(
        parsed.index,
        parsed.endpoint,
        host=parsed.host,
        port=parsed.port,
        images=parsed.images,
        credentials=_credentials(parsed),
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
