"""`index`: build an index, change it and inspect it."""

import argparse
from typing import Any

from tfdml.command_parser import CommandParser, command

from .index_changes import add, build, merge, remove
from .index_reports import duplicates, gallery_map, stats, verify
from .options import (
    add_embedder,
    add_json,
    add_max_pixels,
)


def add_index(commands: Any) -> None:
    """Add the command and its subcommands."""
    typed = command("serving", "index build IMAGES INDEX --model MODEL")
    index: CommandParser = commands.add_parser(
        "index",
        help="build, change and check an index",
        hints={"": f"To embed a folder of images: `{typed}`."},
    )
    own = index.add_subparsers(required=True)
    _add_build(own)
    _add_merge(own)
    _add_add(own)
    _add_remove(own)
    _add_stats(own)
    _add_verify(own)
    _add_duplicates(own)
    _add_map(own)


def _add_build(commands: Any) -> None:
    parser = commands.add_parser("build", help="embed a folder of images for search")
    parser.add_argument(
        "images", help="folder of images, class/image, also s3://, gs:// or az://"
    )
    parser.add_argument("index", help="folder to write the index, or the shard, to")
    parser.add_argument(
        "--model", required=True, help="exported model: a folder of numbered versions"
    )
    _add_reading(parser)
    parser.add_argument(
        "--shard", metavar="NUMBER/COUNT", help="embed only this shard, such as 2/8"
    )
    _add_search(parser)
    _add_store(parser)
    add_json(parser)
    parser.set_defaults(run_command=build, job="index build")


def _add_merge(commands: Any) -> None:
    parser = commands.add_parser("merge", help="build an index from all its shards")
    parser.add_argument("index", help="folder to write the index to")
    parser.add_argument(
        "shards", nargs="+", help="each folder that `index build --shard` wrote"
    )
    _add_search(parser)
    _add_store(parser)
    add_json(parser)
    parser.set_defaults(run_command=merge, job="index merge")


def _add_add(commands: Any) -> None:
    parser = commands.add_parser("add", help="embed images, and add them to an index")
    parser.add_argument("index", help="folder that `index build` wrote")
    parser.add_argument(
        "images", help="folder of images, class/image, also s3://, gs:// or az://"
    )
    add_embedder(parser)
    _add_reading(parser)
    parser.add_argument(
        "--skip-existing",
        action="store_true",
        help="skip images that the index already has",
    )
    add_json(parser)
    parser.set_defaults(run_command=add, job="index add")


def _add_remove(commands: Any) -> None:
    parser = commands.add_parser("remove", help="remove images from an index")
    parser.add_argument("index", help="folder that `index build` wrote")
    parser.add_argument("ids", nargs="*", metavar="ID", help="such as shoe/17.jpg")
    parser.add_argument(
        "--from-file", metavar="FILE", help="text file, one id per line; - for stdin"
    )
    add_json(parser)
    parser.set_defaults(run_command=remove, job="index remove")


def _add_stats(commands: Any) -> None:
    parser = commands.add_parser("stats", help="describe an index and its content")
    parser.add_argument("index", help="folder that `index build` wrote")
    add_json(parser)
    parser.set_defaults(run_command=stats)


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser("verify", help="check every file of an index")
    parser.add_argument("index", help="folder that `index build` wrote")
    add_json(parser)
    parser.set_defaults(run_command=verify, job="index verify")


def _add_duplicates(commands: Any) -> None:
    parser = commands.add_parser(
        "duplicates", help="list images that are nearly the same"
    )
    parser.add_argument("index", help="folder that `index build` wrote")
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.95,
        help="minimum cosine similarity; default: 0.95",
    )
    parser.add_argument(
        "--limit", type=int, default=20, help="groups to print; default: 20"
    )
    add_json(parser)
    parser.set_defaults(run_command=duplicates, job="index duplicates")


def _add_map(commands: Any) -> None:
    parser = commands.add_parser(
        "map", help="lay out images by similarity, and list their clusters"
    )
    parser.add_argument("index", help="folder that `index build` wrote")
    parser.add_argument(
        "--limit",
        type=int,
        default=2000,
        help="maximum number of images, sampled at random; default: 2000",
    )
    add_json(parser)
    parser.set_defaults(run_command=gallery_map, job="index map")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", help="text file that lists the images to use, one path per line"
    )
    parser.add_argument(
        "--batch-size", type=int, default=64, help="images per batch; default: 64"
    )
    parser.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="skip files that cannot be read, and list them",
    )
    parser.add_argument(
        "--no-outside-links",
        action="store_true",
        help="leave out files outside the folder that links lead to",
    )
    add_max_pixels(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="ADDRESS",
        help="database that is to keep the items: http://HOST:19530 for Milvus, or a "
        "path that ends with .db for milvus-lite; default: memory",
    )
    parser.add_argument(
        "--collection",
        metavar="NAME",
        help="new collection in that database; default: the name of the index",
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dimensions",
        type=int,
        metavar="N",
        help="keep only the first N numbers of each embedding; default: all",
    )
    parser.add_argument(
        "--target-recall",
        type=float,
        metavar="SHARE",
        help="share of the true nearest neighbors to find, as measured; default: 0.99",
    )
    parser.add_argument(
        "--engine",
        choices=("scann", "faiss", "exact"),
        help="what to search with if there are 20,000 images or more; default: the "
        "first of these that is installed",
    )
    parser.add_argument(
        "--codes",
        choices=("float32", "int8", "binary"),
        help="hold only short codes in memory, and score a shortlist with embeddings "
        "from the file; default: none",
    )
    parser.add_argument(
        "--code-dimensions",
        type=int,
        metavar="N",
        help="make the codes of the first N numbers of each embedding; default: of all",
    )
