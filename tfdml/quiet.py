"""Hide what other libraries say about themselves while a command runs."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from tfdml.messages import bounded

VERBOSE = "TFDML_VERBOSE"
"""The environment variable that, set to 1, shows what other libraries print."""

# Loggers of other libraries that warn of what no user can change. JAX's is not among
# them: it warns of a GPU that it cannot use.
_LOGGERS = ("absl", "keras", "matplotlib", "tensorflow", "tf2onnx")
OURS = ("tfdml", "training", "serving", "benchmarks", "__main__")

# Lines of TensorFlow, XLA and gRPC, which write to the file and not through Python; the
# levels are information, warning and error. What ends the process is fatal, F.
_FOREIGN = (
    r"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] "
    r"|\d{4}-\d\d-\d\d [\d:.]+ [IWE] "
    r"|WARNING: All log messages before absl"
    r"|INFO: Created TensorFlow Lite "
)
# A GPU whose libraries are missing, and too little memory.
_IMPORTANT = r"(?i)dlopen|memory|OOM|RESOURCE_EXHAUSTED"
# A process of its own: what a library prints before it aborts must come through.
_FILTER = """
import re, sys
foreign, important = (re.compile(text.encode()) for text in sys.argv[1:])
for line in sys.stdin.buffer:
    if not foreign.match(line) or important.search(line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


@contextlib.contextmanager
def quiet(*, native: bool = True) -> Iterator[None]:
    """Hide notes and warnings of other libraries; print a warning of ours as a line.

    Nothing is hidden if `TFDML_VERBOSE` is 1.

    Args:
        native: Whether the lines are hidden that libraries in C++ write to the standard
            error themselves, but for those about memory, and what they print when they
            end the process. Another process reads the standard error for that.
    """
    if _is_verbose():
        yield
        return
    with contextlib.ExitStack() as stack:
        is_filtered = native and stack.enter_context(_filtered())
        # Level 2 would still show that there is no GPU, as an error. What TensorFlow
        # cannot do, it raises.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1" if is_filtered else "3")
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        stack.enter_context(_quiet_python())
        yield


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hide what libraries in C++ write while they are imported, in a server.

    `quiet` would filter what a server writes for as long as it runs. TensorFlow writes
    some notes before it looks at how many it should write. Nothing is hidden if
    `TFDML_VERBOSE` is 1.
    """
    with contextlib.nullcontext() if _is_verbose() else _filtered():
        yield


def _is_verbose() -> bool:
    return os.environ.get(VERBOSE, "0") not in ("", "0")


@contextlib.contextmanager
def _quiet_python() -> Iterator[None]:
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


@contextlib.contextmanager
def _filtered() -> Iterator[bool]:
    """Filter what is written to the standard error, but not by Python.

    Yields:
        Whether it is filtered.
    """
    if not _is_standard_error():
        yield False
        return
    before, real = sys.stderr, os.dup(2)
    before.flush()
    reading, writing = os.pipe()
    try:
        reader = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _FILTER, _FOREIGN, _IMPORTANT],
            stdin=reading,
            stdout=real,
            start_new_session=True,  # Ctrl-C is for the command
        )
        os.dup2(writing, 2)
    except OSError:
        os.close(real)
        yield False
        return
    finally:
        os.close(reading)
        os.close(writing)
    encoding = before.encoding or "utf-8"
    with open(real, "w", 1, encoding=encoding, errors="backslashreplace") as own:
        sys.stderr = own
        try:
            yield True
        finally:
            own.flush()
            os.dup2(real, 2)
            sys.stderr = before
            # A child of the command may hold the pipe open: the rest comes later.
            with contextlib.suppress(subprocess.TimeoutExpired):
                reader.wait(timeout=0.5)


def _is_standard_error() -> bool:
    """Return whether `sys.stderr` writes to the file that libraries write to."""
    if sys.platform == "win32" or sys.stderr is None:
        return False
    try:
        return sys.stderr.fileno() == 2
    except (AttributeError, OSError, io.UnsupportedOperation):
        return False


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
            return name.partition(".")[0] in OURS
        frame = frame.f_back
    return False
