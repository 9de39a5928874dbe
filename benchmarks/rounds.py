"""Report what was measured to a parent process, a line of JSON for each round.

The standard library alone: peers' interpreters import it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any


def tell(phase: str, **record: Any) -> None:
    """Print a record of a phase for `benchmarks.workers`."""
    # Where what a library prints goes elsewhere, this does not.
    print(json.dumps({"phase": phase, **record}), file=sys.__stdout__, flush=True)


def tell_rounds(phase: str, run: Callable[[], int], rounds: int, **record: Any) -> None:
    """Run something some times and tell the images per second of each.

    Args:
        phase: What it is called.
        run: Returns how many images it did; returns when they are done.
        rounds: How often.
        record: What else to tell of each.
    """
    for number in range(rounds):
        begin, start = time.time(), time.perf_counter()
        images = run()
        seconds = time.perf_counter() - start
        tell(
            phase,
            round=number,
            rate=images / seconds,
            begin=begin,
            end=begin + seconds,
            **record,
        )


def steps_of(
    batches: Iterable[Any], steps: int, step: Callable[[Any], object] = lambda batch: 0
) -> Callable[[], int]:
    """Return a function that takes some batches and returns how many images they had.

    Args:
        batches: Go on where the call before stopped.
        steps: Batches of a call.
        step: What to do with each.
    """
    iterator = iter(batches)

    def run() -> int:
        images = 0
        for _ in range(steps):
            batch = next(iterator)
            step(batch)
            # The last of a batch is its labels.
            images += len(batch[-1]) if isinstance(batch, (tuple, list)) else len(batch)
        return images

    return run
