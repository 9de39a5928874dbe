"""Run a command of an application: exit codes, and what is printed of an error."""

import argparse
import os
import sys
from collections.abc import Sequence

from tfdml.messages import bounded


def run_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> int:
    """Parse arguments and run the command that they name.

    `TypeError`, `KeyError` and the like are bugs, and keep their traceback: a command
    line holds nothing but text, and what reads a file that is not as it should be
    raises a `ValueError` of its own.

    Args:
        parser: Its commands set `run_command`, a function of the parsed arguments.
        arguments: Without the name of the program; those of the process by default.

    Returns:
        The exit code: 0, 1 after an error that the user can mend (its message goes to
        the standard error), or 130 after Ctrl-C.
    """
    # TensorFlow writes pages of notes to the console when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    parsed = parser.parse_args(arguments)
    try:
        parsed.run_command(parsed)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        message = bounded(str(error)) or type(error).__name__
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0
