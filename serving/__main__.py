"""`python -m serving`: export a model, serve it, index images, search them."""

import argparse
import sys

from serving.commands.embed import add_embed
from serving.commands.index import add_index
from serving.commands.models import add_models
from serving.commands.options import HintingParser
from serving.commands.page import add_pages
from serving.commands.search import add_search
from tfdml.command_line import run_command


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = HintingParser(
        prog="python -m serving",
        description=__doc__,
        hints={
            "merge": "Shards are merged by `python -m serving index merge INDEX SHARD "
            "...`."
        },
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_models(commands)
    add_embed(commands)
    add_index(commands)
    add_search(commands)
    add_pages(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
