"""Measure the memory that a call adds to its process, on Linux."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any


def added_memory(function: Callable[[], Any]) -> tuple[Any, int]:
    """Call a function, and return what it returns and the bytes its peak added."""
    gc.collect()
    # Sets the peak back to what is in use now.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_bytes()
    result = function()
    return result, peak_bytes() - before


def resident_bytes() -> int:
    """Return the memory that the process has in use now."""
    return _status("VmRSS")


def private_bytes() -> int:
    """Return the memory in use that holds no pages of files."""
    return _status("RssAnon")


def peak_bytes() -> int:
    """Return the most memory that the process has had in use."""
    return _status("VmHWM")


def _status(name: str) -> int:
    """Return an entry of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])
