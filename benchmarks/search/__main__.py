"""The search against other libraries, under changes, under kills, and in the browser.

    python -m benchmarks.search speed --out search.jsonl
    python -m benchmarks.search churn
    python -m benchmarks.search kill --times 50
    python -m benchmarks.search page

speed: recall, queries a second, build time and memory of the index through its
interface, of ScaNN alone at the same settings, and of FAISS, hnswlib and usearch. The
peers run in an environment of their own: `make .peers/search/installed`.

churn: items are added and removed while others search; every answer is checked, and
recall is measured whenever the writer waits. kill: a process that changes a saved index
is killed at random moments; what it had acknowledged must be there. page: a gallery of
drawn pictures, the endpoint and the page as processes, and Chromium; the model has
random weights.

Exit status 1 means that something failed, was wrong or was lost.
"""

import importlib
import os
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path

from benchmarks.session import bare_parser

__all__ = ["main"]

_COMMANDS = ("speed", "churn", "kill", "page")


def main(arguments: Sequence[str] | None = None) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    made = bare_parser("search", __doc__)
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name in _COMMANDS:
        module = importlib.import_module(f"benchmarks.search.{name}")
        command = commands.add_parser(name, help=module.__doc__)
        module.add_options(command.add_argument)
        # Also behind the name of the command, where the other options stand.
        command.add_argument("--out", type=Path, default=SUPPRESS, help=SUPPRESS)
        command.set_defaults(run=module.run)
    options = made.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
