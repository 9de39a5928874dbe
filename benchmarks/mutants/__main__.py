"""Change the code in small ways, and count how many changes the tests catch.

    python -m benchmarks.mutants run before --tree ../tree-before-the-move
    python -m benchmarks.mutants run before --again --seconds 40 --files 6 --tree ...
    python -m benchmarks.mutants run after --only 'not full'
    python -m benchmarks.mutants report --survivors

A mutant is known by its function and text, not by its file: it is found again when code
moves. Each is tested in a fork of a process that has imported TensorFlow, with the
tests nearest to its module, as many as fit into some CPU seconds. No file is changed;
what is not in `mutants.jsonl` beside this package yet is run, so a run can be
interrupted. Tests that start processes of their own see the code as it is there.
"""

import argparse
import collections
import fnmatch
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.mutants.changes import Mutant, find_again, mutants_in
from benchmarks.mutants.chosen_tests import PACKAGES, Imports, Selection, tests_of
from benchmarks.mutants.forks import import_shared, run_tests

RESULTS = Path(__file__).parents[1] / "mutants.jsonl"
AREAS = {
    "losses": (90, "tfdml/losses/*"),
    "pairs": (45, "tfdml/pairs.py tfdml/triplet_weights.py tfdml/histograms.py"),
    "metrics": (
        50,
        "tfdml/metrics.py tfdml/*_metrics.py tfdml/ranks.py tfdml/ranked.py "
        "tfdml/query_results.py tfdml/match_scores.py tfdml/pair_counts.py "
        "tfdml/verification.py",
    ),
    "neighbors": (30, "tfdml/neighbors.py tfdml/exact_scores.py"),
    "index": (55, "tfdml/index/[!m]* tfdml/index/manifest.py"),
    "batching": (25, "serving/batching/*"),
    "rest": (25, "serving/rest/*"),
}
"""How many mutants, of files as they lay at commit d4294dd, before the move."""

_RESERVE = 0.1  # so many more are sampled, for mutants that the move takes away
_FIELDS = ("module", "function", "kind", "nth", "text", "becomes", "statement", "area")
_IDENTITY = _FIELDS[:5]


def sample(tree: Path, seed: int = 0, most: int = 4) -> list[Mutant]:
    """Choose the mutants of all areas in turn, at most so many of one function."""
    chosen: list[tuple[float, Mutant]] = []
    for area, (count, patterns) in AREAS.items():
        files = [
            file
            for top in PACKAGES
            for file in sorted((tree / top).rglob("*.py"))
            for pattern in patterns.split()
            if fnmatch.fnmatch(file.relative_to(tree).as_posix(), pattern)
        ]
        mutants = mutants_in(tree, files)
        random.Random(f"{seed} {area}").shuffle(mutants)  # noqa: S311 - not a secret
        functions: collections.Counter[tuple[str, str]] = collections.Counter()
        taken = 0
        for mutant in mutants:
            functions[mutant.module, mutant.function] += 1
            if functions[mutant.module, mutant.function] > most:
                continue
            mutant.area = area
            chosen.append(((taken + 0.5) / count, mutant))
            taken += 1
            if taken == round(count * (1 + _RESERVE)):
                break
    return [mutant for _, mutant in sorted(chosen, key=lambda pair: pair[0])]


def read(when: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the results of a run by mutant, the latest of each, in order."""
    if not RESULTS.exists():
        return {}
    lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {_identity(line): line for line in lines if line["when"] == when}


def run(
    when: str, tree: Path, only: str, seconds: float, files: int, again: bool
) -> None:
    """Test all mutants that have no result yet, and write each as it is there.

    Args:
        when: Name of the run. The run "before" chooses the mutants.
        tree: Folder of the code.
        only: Marker expression that the tests have to meet; empty: none.
        seconds: CPU time of the tests of a mutant.
        files: How many files of tests are tried.
        again: Test the survivors of this run once more.
    """
    import_shared()
    tree = tree.resolve()
    before = read("before").values()
    if when == "before":
        wanted = sample(tree)
    else:
        wanted = [Mutant(**{x: line[x] for x in _FIELDS}) for line in before]
    sources = [file for top in PACKAGES for file in sorted((tree / top).rglob("*.py"))]
    mutants, imports = mutants_in(tree, sources), Imports(tree)
    done = read(when)
    counts: collections.Counter[str] = collections.Counter()
    os.chdir(tree)
    sys.path[0] = str(tree)
    for mutant in wanted:
        if when != "before" and counts[mutant.area] == AREAS[mutant.area][0]:
            continue
        line = {x: getattr(mutant, x) for x in _FIELDS}
        old = done.get(_identity(line))
        found = find_again(mutant, mutants)
        counts[mutant.area] += found is not None
        if old and not (again and old["caught"] is False):
            continue
        started = time.monotonic()
        if found is None:
            line.update(caught=None)
        else:
            folder = tree / "build" / f"mutants-{when}"
            line.update(_test(tree, found, imports, folder, only, seconds, files))
        line.update(when=when, seconds=round(time.monotonic() - started, 1))
        with RESULTS.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)


def report(survivors: bool) -> None:
    """Print how many mutants of each area were caught, of those in every run."""
    before = read("before")
    after = {x: line for x, line in read("after").items() if line["caught"] is not None}
    runs = [before, after] if after else [before]
    titles = ["mutants", "before", "after"][: 1 + len(runs)]
    print(f"{'area':10}" + "".join(f"{title:>9}" for title in titles))
    rows: dict[str, list[int]] = {}
    for area, (count, _) in AREAS.items():
        names = [x for x, line in before.items() if line["area"] == area]
        names = [x for x in names if x in after] if after else names[:count]
        caught = [sum(results[x]["caught"] for x in names) for results in runs]
        rows[area] = [len(names), *caught]
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    for area, numbers in rows.items():
        print(f"{area:10}" + "".join(f"{number:9}" for number in numbers))
    for name, line in runs[-1].items():
        lost = bool(after) and before[name]["caught"]
        if not line["caught"] and (lost or survivors):
            print(
                f"{'lost' if lost else 'survives'}: {line['now']}, {line['function']}: "
                f"{line['text']} -> {line['becomes']} in {line['statement']}"
            )


def _test(
    tree: Path,
    mutant: Mutant,
    imports: Imports,
    folder: Path,
    only: str,
    seconds: float,
    files: int,
) -> dict[str, Any]:
    """Return what the tests say of one mutant."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = tests_of(imports, mutant.module, files)
    table, last = folder / "tests.jsonl", folder / "last.jsonl"
    while True:
        known = {
            x: time if passed else None for x, (time, passed) in _results(table).items()
        }
        last.unlink(missing_ok=True)
        selection = Selection(imports, mutant.module, tests, known, seconds, last)
        ended = run_tests(tree, mutant, selection, only, 20 + 3 * seconds)
        results = _results(last)
        by = next((name for name, (_, passed) in results.items() if not passed), None)
        _append(table, {x: y for x, y in results.items() if y[1] and x not in known})
        if by is None or by in known:
            break
        # Does it pass on the code as it is?
        last.unlink(missing_ok=True)
        selection = Selection(imports, mutant.module, [by], {}, 0, last)
        as_it_is = run_tests(tree, None, selection, only, 20 + 2 * seconds)
        result = _results(last).get(by, (0, as_it_is in ("passed", "stopped")))
        _append(table, {by: result})
        if result[1]:
            break
        tests = [test for test in tests if test != by]
    if by is None and ended not in ("passed", "no tests", "stopped"):
        by = ended
    return {
        "caught": by is not None,
        "by": by,
        "tests": len(results),
        "now": mutant.module,
    }


def _results(file: Path) -> dict[str, tuple[float, bool | None]]:
    """Return CPU seconds of each test and whether it passed; None: it did not end."""
    if not file.exists():
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {name: (seconds, passed) for name, seconds, passed in lines}


def _append(file: Path, results: Mapping[str, tuple[float, bool | None]]) -> None:
    with file.open("a", encoding="utf-8") as lines:
        for name, result in results.items():
            print(json.dumps([name, *result]), file=lines)


def _identity(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line[x] for x in _IDENTITY)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="test the mutants without a result")
    command.add_argument("when", choices=["before", "after"])
    command.add_argument("--tree", type=Path, default=Path(), help="the code (.)")
    command.add_argument("--only", default="", help="markers of the tests that count")
    command.add_argument("--seconds", type=float, default=10, help="CPU time each (10)")
    command.add_argument("--files", type=int, default=3, help="files of tests each (3)")
    command.add_argument("--again", action="store_true", help="survivors once more")
    command = commands.add_parser("report", help="count what was caught")
    command.add_argument("--survivors", action="store_true", help="and list the rest")
    arguments = vars(parser.parse_args())
    if arguments.pop("command") == "run":
        run(**arguments)
    else:
        report(**arguments)


if __name__ == "__main__":
    main()
