"""Do runs in several processes side by side."""

import multiprocessing
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Self

from benchmarks.papers.runs import Run

_RUNS_A_PROCESS = 30
"""What a backend has compiled stays in memory until its process ends."""

_Work = Callable[[Run], dict[str, Any] | None]


class Processes:
    """Processes that do runs, to be used in `with`, which ends them.

    Args:
        number: How many at one time.
    """

    def __init__(self, number: int) -> None:
        self._places = [_Place() for _ in range(number)]

    def __enter__(self) -> Self:
        """Begin nothing yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """End them, after what they do."""
        for place in self._places:
            place.end()

    def do(
        self,
        runs: Sequence[Run],
        work: _Work,
        keep: Callable[[Run, dict[str, Any]], None],
    ) -> bool:
        """Do runs; returns whether all were done.

        A run that fails, or whose process dies, is reported, and the others go on.

        Args:
            runs: What to do, in this order.
            work: Does one in its process; returns None where the time is over: then no
                other is begun.
            keep: Keeps what `work` has returned, in this process, as soon as it is
                there.
        """
        waiting = deque(runs)
        going: dict[Future, tuple[_Place, Run]] = {}
        done = 0

        def begin_next(place: _Place) -> None:
            if waiting:
                run = waiting.popleft()
                going[place.begin(work, run)] = place, run

        for place in self._places:
            begin_next(place)
        while going:
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                place, run = going.pop(future)
                try:
                    found = future.result()
                except Exception:  # the others go on
                    print(f"{run.study} {run.series} of {run.set} failed:", flush=True)
                    traceback.print_exc()
                else:
                    if found is None:
                        waiting.clear()
                    else:
                        keep(run, found)
                        done += 1
                begin_next(place)
        return done == len(runs)


class _Place:
    """Where one run is done at a time, in a process that is now and then a new one.

    Each has a pool of its own: then it is known whose process died, and no other run is
    lost with it. Nor does a place wait for ever, as a pool with `max_tasks_per_child`
    can in Python 3.11 once a process has ended.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._begun = 0

    def begin(self, work: _Work, run: Run) -> Future:
        """Begin a run, the one before having ended."""
        if self._begun == _RUNS_A_PROCESS:
            self.end()
        if self._pool is None:
            # A process that was forked with JAX in it hangs.
            context = multiprocessing.get_context("spawn")
            self._pool, self._begun = ProcessPoolExecutor(1, context), 0
        try:
            future = self._pool.submit(work, run)
        except BrokenProcessPool:  # its process has died
            self.end()
            return self.begin(work, run)
        self._begun += 1
        return future

    def end(self) -> None:
        """End the process, after what it does."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
