"""Export a model, serve it, index images and search them."""

import sys
from typing import Any

from tfdml.command_line import run_command
from tfdml.command_parser import CommandParser, command

from .commands.drift import add_drift
from .commands.embed import add_embed
from .commands.index import add_index
from .commands.models import add_models
from .commands.page import add_pages
from .commands.search import add_search
from .commands.upgrade import add_upgrade


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    return run_command(_parser(), arguments)


def hints() -> dict[str, str]:
    """Return what to say of commands that are not here, by their words."""
    merge = command("serving", "index merge INDEX SHARD ...")
    return {"merge": f"Shards are merged by `{merge}`."}


def add_to(commands: Any) -> None:
    """Add the commands to the subparsers of a `CommandParser`."""
    add_models(commands)
    add_embed(commands)
    add_index(commands)
    add_upgrade(commands)
    add_search(commands)
    add_pages(commands)
    add_drift(commands)


def _parser() -> CommandParser:
    parser = CommandParser(
        prog=f"python -m {__package__}", description=__doc__, hints=hints()
    )
    add_to(parser.add_subparsers(required=True))
    return parser


if __name__ == "__main__":
    sys.exit(main())
