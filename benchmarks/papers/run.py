"""Do the runs of the studies, in several processes side by side."""

import argparse
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.cases import CASES
from benchmarks.papers.processes import Processes
from benchmarks.papers.runs import Record, Run, read_results
from benchmarks.papers.sets import SETS, tables_of
from benchmarks.papers.studies import STUDIES, Study, floor_runs
from benchmarks.papers.tuning import Place, more_tuning_runs, rates_of, tuning_runs
from benchmarks.session import machine, write

_Work = Callable[[Run], dict[str, Any] | None]


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
    if wrong := _wrong(options):
        print(wrong, file=sys.stderr)
        return 2
    _tell_unknown(options.packed)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    until = time.monotonic() + options.seconds
    work = functools.partial(_work, options.packed, options.weights, until)
    results = _Results(options.out, options.commit or _commit())
    sets = options.sets or _packed_sets(options.packed)
    studies = {name: STUDIES[name] for name in options.study or STUDIES}

    places = _places(studies.values(), sets, options.only or CASES)
    tuning = tuning_runs(places, options.steps)
    with Processes(options.processes) as several:
        first = [*floor_runs(sets), *(run for _, run in tuning)]
        complete = _finish(first, results, work, several)
        more = more_tuning_runs(rates_of(tuning, results.records), options.steps)
        ends = [run for _, run in more]
        complete = _finish(ends, results, work, several) and complete
        rates = rates_of([*tuning, *more], results.records)
        if without := [place.name for place in places if place not in rates]:
            print(
                "Left out, as some run that chooses their learning rate is missing or "
                f"all diverged: {'; '.join(without)}.",
                flush=True,
            )
        runs: dict[bool, list[Run]] = {False: [], True: []}
        for name, study in studies.items():
            runs[study.is_timed] += study.runs(
                name, sets, rates, options.steps, options.seeds
            )
        complete = _finish(runs[False], results, work, several) and complete
    with Processes(1) as alone:
        complete = _finish(runs[True], results, work, alone) and complete
    return 0 if complete and not without else 1


def _wrong(options: argparse.Namespace) -> str | None:
    """Return which option cannot be, and why."""
    if options.out is None or not options.out.absolute().parent.is_dir():
        return (
            "`--out` must be the file to append results to, in a folder that exists. "
            f"Received: {options.out}."
        )
    fit = tables_of(next(iter(SETS)))["fit"]
    epoch, warmup = fit["steps_per_epoch"], fit["warmup_steps"]
    if options.steps % epoch or options.steps <= warmup:
        return (
            f"`--steps` must be a multiple of {epoch} (an epoch) and above {warmup} "
            f"(the warmup). Received: {options.steps}."
        )
    if options.processes < 1:
        return f"`--processes` must be at least 1. Received: {options.processes}."
    there = _packed_sets(options.packed)
    if missing := [set_ for set_ in options.sets or () if set_ not in there]:
        return f"`--sets` must be in {options.packed}: `pack` them. Missing: {missing}."
    if not there:
        return (
            f"`--packed` must be a folder with {', '.join(SETS)} or some of them as "
            f".npz, which `pack` writes. Received: {options.packed}."
        )
    return None


def _packed_sets(packed: Path) -> list[str]:
    return sorted(file.stem for file in packed.glob("*.npz") if file.stem in SETS)


def _tell_unknown(packed: Path) -> None:
    if unknown := [f.name for f in packed.glob("*.npz") if f.stem not in SETS]:
        print(f"Ignored in {packed}, as no sets: {', '.join(sorted(unknown))}.")


def _places(
    studies: Iterable[Study], sets: Sequence[str], only: Iterable[str]
) -> list[Place]:
    """Return for what the studies need a learning rate, each once."""
    places = {
        variant.place(set_): None
        for study in studies
        for set_ in sets
        for variant in study.of(set_)
        if variant.case in only
    }
    return list(places)


def _finish(
    runs: Sequence[Run], results: "_Results", work: _Work, processes: Processes
) -> bool:
    """Do those runs that have no result; returns whether now all have one."""
    results.rename_done(runs)
    complete = processes.do(results.missing(runs), work, results.keep)
    results.rename_done(runs)
    return complete


class _Results:
    """What the file of results has, and is appended to."""

    def __init__(self, out: Path, commit: str) -> None:
        self.records = read_results([out])
        self._out = out
        self._about = {"commit": commit, "command": " ".join(sys.argv[1:])}
        others = [each for each in self.records.values() if not self._is_ours(each)]
        if others:
            print(
                f"{out} has {len(others)} results of other commits than {commit}: "
                "those runs are not done again.",
                flush=True,
            )

    def keep(self, done: Run, found: dict[str, Any]) -> None:
        """Keep what a run has found, and others that needed the same training."""
        for each, part in done.found_by(found):
            if each.key not in self.records:
                self._append(each.record() | part | self._about)

    def rename_done(self, runs: Iterable[Run]) -> None:
        """Keep results of runs of other studies that did the same work by this code."""
        done = {
            each["work"]: each for each in self.records.values() if self._is_ours(each)
        }
        for each in runs:
            if each.key not in self.records and each.work in done:
                self._append(each.renamed(done[each.work]))

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that have no result, one of those that train the same."""
        missing: dict[str, Run] = {}
        for each in runs:
            if each.key not in self.records:
                missing.setdefault(each.training, each)
        return list(missing.values())

    def _is_ours(self, record: Record) -> bool:
        return record["commit"] == self._about["commit"]

    def _append(self, record: Record) -> None:
        write(self._out, record)
        self.records[record["key"]] = record
        print(_line(record), flush=True)


def _work(
    packed: Path, weights: str | None, until: float, run: Run
) -> dict[str, Any] | None:
    """Do one run, in a process of its own."""
    if time.monotonic() > until:
        return None
    import keras

    from benchmarks.papers.train import frozen, timed, train
    from training.recipe.recipe import recipe_of

    tables = run.tables
    if weights is not None:
        tables = tables | {"embedder": tables["embedder"] | {"weights": weights}}
    if keras.backend.backend() == "tensorflow" and not _has_gpu():
        # There XLA's depthwise convolutions take three times as long, for the same.
        tables = tables | {"fit": tables["fit"] | {"jit_compile": False}}
    recipe = recipe_of(tables, f"{run.study} {run.series}")
    data = _data(run.set, packed)
    measure = timed if run.is_timed else train if run.is_trained else frozen
    start = time.perf_counter()
    found = measure(run, recipe, data)
    return found | {"seconds": round(time.perf_counter() - start, 1), **machine()}


def _has_gpu() -> bool:
    """Return whether TensorFlow computes on a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


@functools.cache
def _data(name: str, packed: Path) -> Any:
    from benchmarks.papers.pack import read_packed

    return read_packed(name, packed / f"{name}.npz")


def _commit() -> str:
    """Return the commit of this code, `-dirty` where it was changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _line(record: Record) -> str:
    if "metrics" in record:
        name, value = next(iter(record["metrics"].items()))
    else:
        name = "step_ms" if "step_ms" in record else "diverged_at"
        value = record[name]
    fit = record["tables"]["fit"]
    parts = [str(record[about]) for about in ("study", "set", "split", "series")]
    if record["point"] is not None:
        parts.append(str(record["point"]))
    parts += [f"{about}={fit.get(about)}" for about in ("learning_rate", "seed")]
    return "  ".join([*parts, f"{name}={value}", f"{record['seconds']} s"])
