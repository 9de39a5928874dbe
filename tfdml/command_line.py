"""Run a command of an application: exit codes, and what is printed of an error."""

import argparse
import os
import sys
from collections.abc import Sequence

from tfdml.files import DISK_IS_FULL
from tfdml.messages import bounded, cut
from tfdml.progress import Progress, in_terminal
from tfdml.quiet import OURS, quiet


def run_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> int:
    """Parse arguments and run the command that they name.

    `TypeError`, `KeyError` and the like are bugs, and keep their traceback: a command
    line holds nothing but text, and what reads a file that is not as it should be
    raises a `ValueError` of its own.

    What TensorFlow and others print of themselves is hidden (`tfdml.quiet`).

    Args:
        parser: Its commands set `run_command`, a function of the parsed arguments.
            Those that may take long also set `job`, what they do in a word or two.
        arguments: Without the name of the program; those of the process by default.

    Returns:
        The exit code: 0, 1 after an error that the user can mend (its message goes to
        the standard error), or 130 after Ctrl-C.
    """
    parsed = parser.parse_args(arguments)
    try:
        with quiet(native=hasattr(parsed, "job")), _noted(parsed):
            parsed.run_command(parsed)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
        missing = error.name or "" if isinstance(error, ImportError) else ""
        if missing.partition(".")[0] in OURS:
            raise
        print(f"error: {_message(error)}", file=sys.stderr)
        return 1
    return 0


def _message(error: Exception) -> str:
    # An error of ours says itself what to do.
    if (
        isinstance(error, OSError)
        and error.errno is not None
        and error.errno in DISK_IS_FULL
        and error.strerror == os.strerror(error.errno)
    ):
        what = cut(error.filename, 300) if error.filename else "what the command writes"
        return (
            f"The disk is full: there is no room for {what}. Make room on it, and run "
            "the command again."
        )
    return bounded(str(error)) or type(error).__name__


def _noted(parsed: argparse.Namespace) -> Progress:
    """Return what a file or pipe gets of a long command between its own jobs."""
    job = getattr(parsed, "job", "")
    is_shown = bool(job) and not getattr(parsed, "json", False)
    return Progress(job, shown=is_shown and not in_terminal())
