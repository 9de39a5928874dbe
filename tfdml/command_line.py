"""Run a command of an application: exit codes, and what is printed of an error."""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from tfdml.messages import bounded
from tfdml.progress import Progress, in_terminal

VERBOSE = "TFDML_VERBOSE"
"""The environment variable that, set to 1, shows what other libraries print."""

# Loggers of other libraries that warn of what no user can change. JAX's is not among
# them: it warns of a GPU that it cannot use.
_LOGGERS = ("absl", "keras", "matplotlib", "tensorflow")
_OURS = ("tfdml", "training", "serving", "benchmarks", "__main__")


def run_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> int:
    """Parse arguments and run the command that they name.

    `TypeError`, `KeyError` and the like are bugs, and keep their traceback: a command
    line holds nothing but text, and what reads a file that is not as it should be
    raises a `ValueError` of its own.

    What TensorFlow and others print of themselves is hidden, except what ends a
    process, unless `TFDML_VERBOSE` is 1.

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
        with _quiet(), _noted(parsed):
            parsed.run_command(parsed)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
        missing = error.name or "" if isinstance(error, ImportError) else ""
        if missing.partition(".")[0] in _OURS:
            raise
        message = bounded(str(error)) or type(error).__name__
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0


def _noted(parsed: argparse.Namespace) -> Progress:
    """Return what a file or pipe gets of a long command between its own jobs."""
    job = getattr(parsed, "job", "")
    is_shown = bool(job) and not getattr(parsed, "json", False)
    return Progress(job, shown=is_shown and not in_terminal())


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what other libraries say of themselves; a warning of ours is a line."""
    if os.environ.get(VERBOSE, "0") not in ("", "0"):
        yield
        return
    # Level 2 would still show that there is no GPU, as an error. What TensorFlow
    # cannot do, it raises; what ends the process is printed at every level.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    loggers = {name: logging.getLogger(name) for name in _LOGGERS}
    before = warnings.showwarning, {n: logger.level for n, logger in loggers.items()}
    try:
        warnings.showwarning = _show_warning
        for logger in loggers.values():
            logger.setLevel(logging.ERROR)
        yield
    finally:
        warnings.showwarning, levels = before
        for name, logger in loggers.items():
            logger.setLevel(levels[name])


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of ours in a line, and none of other libraries."""
    if _warns_from_ours():
        print(f"warning: {bounded(str(message))}", file=file or sys.stderr)


def _warns_from_ours() -> bool:
    """Return whether the innermost caller of `warnings.warn` is ours.

    `stacklevel` names the caller of a function, which may be Keras where the warning is
    ours: the stack tells who it was.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in (__name__, "warnings"):
            return name.partition(".")[0] in _OURS
        frame = frame.f_back
    return False
