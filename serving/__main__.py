"""`python -m serving`: export a model, serve it, index images, search them."""

import argparse
import sys

from tfdml.command_line import run_command

from .commands.embed import add_embed
from .commands.index import add_index
from .commands.models import add_models
from .commands.options import HintingParser
from .commands.page import add_pages
from .commands.search import add_search


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
