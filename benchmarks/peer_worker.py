"""Measure a peer once, in a process that may die of it.

Run by the peer's own interpreter: nothing of this library or of Keras is imported.
"""

import argparse
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.timing import smallest_times


def measure(modes: Mapping[str, Callable[..., Callable[[], object]]]) -> None:
    """Time the case that the command line names and print a JSON line for each mode.

    A call that takes too long ends the process by SIGALRM, and one that takes too much
    memory gets none.

    Args:
        modes: Ways to run a case, by name. Each maps the name of a case, a batch size
            and a dimension to a function that computes loss and gradients.
    """
    parser = argparse.ArgumentParser(description="Time one loss of a peer.")
    parser.add_argument("case")
    parser.add_argument("batch", type=int)
    parser.add_argument("dimension", type=int)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--limit-seconds", type=int, default=60)
    parser.add_argument("--limit-gigabytes", type=float, default=14.0)
    options = parser.parse_args()
    limit = int(options.limit_gigabytes * 2**30) + _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for mode, build in modes.items():
        function = build(options.case, options.batch, options.dimension)
        signal.alarm(options.limit_seconds)
        start = time.perf_counter()
        function()
        first = time.perf_counter() - start
        signal.alarm(0)
        # A call of seconds is timed once more and no oftener.
        signal.alarm(3 * options.limit_seconds)
        rounds = 3 if first < options.seconds else 1
        time_ms = smallest_times({mode: function}, options.seconds, rounds)[mode]
        signal.alarm(0)
        print(json.dumps({"mode": mode, "ms": time_ms}), flush=True)


def _address_space() -> int:
    """Bytes of address space that the process takes up now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
