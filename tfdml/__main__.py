# PYTHON_ARGCOMPLETE_OK
"""`tfdml`: all commands of training and serving, from data sets to the search page."""

import argparse
import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from tfdml.command_line import run_command
from tfdml.command_parser import CommandParser


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what the next word may be
        with contextlib.suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    return run_command(parser, arguments)


def _parser() -> CommandParser:
    package = _applications()
    applications = [
        importlib.import_module(f"{package}{name}.__main__")
        for name in ("training", "serving")
    ]
    parser = CommandParser(
        prog="python -m tfdml" if __name__ == "__main__" else "tfdml",
        description="Build data sets, train and evaluate embedders, serve them, and "
        "search images.",
        hints={w: h for each in applications for w, h in each.hints().items()},
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0)
    commands = parser.add_subparsers(required=True)
    for application in applications:
        application.add_to(commands)
    return parser


class _PrintVersion(argparse.Action):
    """Looks the version up when it is asked for, unlike `action="version"`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from tfdml import __version__

        print(f"tfdml {__version__}")
        parser.exit()


def _applications() -> str:
    """Return what stands before the names of the applications, and make it work.

    They are packages inside the installed library, and lie beside it in a checkout.
    """
    here = Path(__file__).parent
    if (here / "training").is_dir():
        return "tfdml."
    sys.path.append(str(here.parent))
    return ""


if __name__ == "__main__":
    sys.exit(main())
