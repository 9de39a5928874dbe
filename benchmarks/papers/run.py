"""The runs of the studies, several processes side by side."""

import argparse
import functools
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.papers.cases import CASES
from benchmarks.papers.runs import Record, Run, read_results
from benchmarks.papers.sets import SETS
from benchmarks.papers.studies import STUDIES, floor_runs
from benchmarks.papers.tuning import rates_of, tuning_runs
from benchmarks.session import machine, write

__all__ = ["add_options", "do", "run"]

_RUNS_A_PROCESS = 10
"""What a backend has compiled stays in memory until its process ends."""


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--packed", type=Path, required=True, help="folder of what `pack` has written")
    add("--weights", help="MobileNet's weights (downloaded by Keras)")
    add("--study", nargs="+", choices=list(STUDIES), help="these alone")
    add("--sets", nargs="+", choices=list(SETS), help="these alone")
    add("--only", nargs="+", choices=list(CASES), help="these losses alone")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(0 1 2)")
    add("--steps", type=int, default=1500, help="of training, in hundreds (1500)")
    add("--processes", type=int, default=1, help="that train side by side (1)")
    add(
        "--seconds", type=float, default=float("inf"), help="begin no run after so many"
    )
    add("--commit", default=None, help="of this code, where git cannot tell")


def run(options: argparse.Namespace) -> int:
    """Do the runs that the file of results has not; returns the exit status."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    until = time.monotonic() + options.seconds
    studies = {name: STUDIES[name] for name in options.study or STUDIES}
    sets = options.sets or sorted(p.stem for p in options.packed.glob("*.npz"))
    results = read_results([options.out] if options.out else [])
    about = {"commit": options.commit or _commit(), "command": " ".join(sys.argv[1:])}
    work = functools.partial(_work, options.packed, options.weights, until)

    def keep(run: Run, record: Record) -> None:
        results[run.key] = record
        write(options.out, record)
        print(_line(record), flush=True)

    def name_anew(runs: Iterable[Run]) -> None:
        """Keep results of other studies that did the same work."""
        done = {record["work"]: record for record in results.values()}
        for run in runs:
            if run.key not in results and run.work in done:
                keep(run, run.named_anew(done[run.work]))

    def finish(runs: Sequence[Run], processes: int = options.processes) -> bool:
        name_anew(runs)
        left: dict[str, Run] = {}
        for run in runs:
            if run.key not in results:
                left.setdefault(run.work, run)
        complete = do(
            list(left.values()),
            work,
            lambda run, found: keep(run, run.record() | found | about),
            processes,
        )
        name_anew(runs)
        return complete

    cases = {
        (set_, variant.case): None
        for study in studies.values()
        for set_ in sets
        for variant in study.of(set_)
        if variant.case in (options.only or CASES)
    }
    complete = finish([*floor_runs(sets), *tuning_runs(cases, options.steps)])
    rates = rates_of(results.values(), options.steps)
    rates = {at: rate for at, rate in rates.items() if at in cases}
    for is_timed, processes in ((False, options.processes), (True, 1)):
        runs = [
            run
            for name, study in studies.items()
            if study.is_timed == is_timed
            for run in study.runs(name, sets, rates, options.steps, options.seeds)
        ]
        complete = finish(runs, processes) and complete
    return 0 if complete else 1


def do(
    runs: Sequence[Run],
    work: Callable[[Run], dict[str, Any] | None],
    keep: Callable[[Run, dict[str, Any]], None],
    processes: int,
) -> bool:
    """Do runs in processes; returns whether all were done.

    Args:
        runs: What to do, in this order.
        work: Does one in its process; returns None where the time is over.
        keep: Keeps what `work` has returned, in this process, as soon as it is there.
        processes: How many at one time.
    """
    if not runs:
        return True
    # A process that was forked with JAX in it hangs.
    context = multiprocessing.get_context("spawn")
    done = 0
    with ProcessPoolExecutor(
        min(processes, len(runs)), context, max_tasks_per_child=_RUNS_A_PROCESS
    ) as pool:
        left: dict[Future, Run] = {pool.submit(work, run): run for run in runs}
        while left:
            for future in wait(left, return_when=FIRST_COMPLETED).done:
                run = left.pop(future)
                try:
                    found = future.result()
                except Exception:  # the others go on
                    print(f"{run.study} {run.series} of {run.set} failed:", flush=True)
                    traceback.print_exc()
                    continue
                if found is not None:
                    keep(run, found)
                    done += 1
    return done == len(runs)


def _work(
    packed: Path, weights: str | None, until: float, run: Run
) -> dict[str, Any] | None:
    """Do one run, in a process of its own."""
    if time.monotonic() > until:
        return None
    from benchmarks.papers.train import frozen, train
    from training.recipe import recipe_of

    tables = run.tables
    if weights is not None:
        tables = tables | {"embedder": tables["embedder"] | {"weights": weights}}
    recipe = recipe_of(tables, f"{run.study} {run.series}")
    data = _data(packed / f"{run.set}.npz")
    start = time.perf_counter()
    found = (train if run.is_trained else frozen)(run, recipe, data)
    return found | {"seconds": round(time.perf_counter() - start, 1), **machine()}


@functools.cache
def _data(packed: Path) -> Any:
    from benchmarks.papers.pack import read_packed

    return read_packed(packed)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _line(record: Record) -> str:
    fit = record["tables"]["fit"]
    name, value = next(iter(record.get("metrics", {}).items()), ("diverged_at", None))
    parts = [str(record[about]) for about in ("study", "set", "split", "series")]
    if record["point"] is not None:
        parts.append(str(record["point"]))
    parts += [f"{about}={fit.get(about)}" for about in ("learning_rate", "seed")]
    return "  ".join(
        [*parts, f"{name}={record.get(name, value)}", f"{record['seconds']} s"]
    )
