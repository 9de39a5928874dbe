"""Run tests in a fork of this process, with one module of the tree changed."""

import ast
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.mutants.changes import Mutant, mutants_of
from benchmarks.mutants.chosen_tests import Selection, dotted

_SHARED = (
    *("tensorflow", "keras", "pytest", "hypothesis.strategies", "grpc", "httpx2"),
    *("uvicorn", "starlette.applications", "PIL.Image", "sklearn.metrics"),
    "scipy.stats",
)
_IDLE_SECONDS = 30


def import_shared() -> None:
    """Import what takes seconds and use none of it: the forks of this process share it.

    TensorFlow that has run in a process does not run in its forks.
    """
    os.environ.update(
        KERAS_BACKEND="tensorflow",
        TF_CPP_MIN_LOG_LEVEL="2",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",  # they take seconds
        CI="true",  # Hypothesis draws the same examples each time, without deadlines
    )
    for name in _SHARED:
        importlib.import_module(name)
    gc.freeze()  # or each fork looks through all of it, several times


def run_tests(
    tree: Path, mutant: Mutant | None, selection: Selection, only: str, seconds: float
) -> str:
    """Run tests in a fork until one fails; returns how it ended.

    Args:
        tree: Folder of the code, which is the working directory.
        mutant: What is changed; None: nothing.
        selection: Which tests.
        only: Marker expression that they have to meet; empty: none.
        seconds: CPU time after which the fork is killed. One whose threads all wait
            for half a minute is killed, too.
    """
    child = os.fork()
    if not child:
        _run_in_child(tree, mutant, selection, only, round(seconds))
    looks = idle = 0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.1)
        looks += 1
        if looks % 10 == 0:
            idle = 0 if _is_busy(child) else idle + 1
        if idle > _IDLE_SECONDS or looks > 200 * seconds:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "stalled"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests have started
    if os.WIFSIGNALED(ended[1]):
        name = signal.Signals(os.WTERMSIG(ended[1])).name
        return "took too long" if name in ("SIGXCPU", "SIGKILL") else name
    code = os.waitstatus_to_exitcode(ended[1])
    if code == 4:
        raise RuntimeError(_log(selection).read_text(encoding="utf-8"))
    return {0: "passed", 1: "failed", 2: "stopped", 3: "broken", 5: "no tests"}[code]


def _log(selection: Selection) -> Path:
    return selection.report.with_suffix(".log")


def _run_in_child(
    tree: Path, mutant: Mutant | None, selection: Selection, only: str, seconds: int
) -> None:
    import pytest

    code = 4
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        log = os.open(_log(selection), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        for name in [x for x in sys.modules if x.split(".")[0] == "benchmarks"]:
            del sys.modules[name]  # it may be that of another tree
        if mutant:
            sys.meta_path.insert(0, _Finder(tree, mutant))
        options = ["-q", "-x", "--tb=short", "-p", "no:cacheprovider"]
        options += ["-p", "_hypothesis_pytestplugin"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        # Others may clean up the folder that is used if none is given.
        options += [f"--basetemp={selection.report.with_suffix('.tmp')}"]
        options += ["-m", only] if only else []
        code = int(pytest.main([*options, *selection.tests], plugins=[selection]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Finder(importlib.abc.MetaPathFinder):
    """Give one module its source with a change."""

    def __init__(self, tree: Path, mutant: Mutant) -> None:
        self._name, self._file = dotted(mutant.module), tree / mutant.module
        parsed = ast.parse(self._file.read_text(encoding="utf-8"))
        for found in mutants_of(parsed):
            same = (found.function, found.kind, found.nth)
            if same == (mutant.function, mutant.kind, mutant.nth):
                found.apply()
        self._code = compile(ast.fix_missing_locations(parsed), self._file, "exec")

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return how to load the module, or None if it is another one."""
        if name != self._name:
            return None
        loader = _Loader(name, str(self._file))
        loader.code = self._code
        return importlib.util.spec_from_file_location(name, self._file, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    code: Any

    def get_code(self, fullname: str) -> Any:
        """Return the changed code."""
        return self.code


def _is_busy(session: int) -> bool:
    """Return whether a thread of the processes of a session runs or wants to."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(_stat(process)[3]) != session:
                continue
            if any(_stat(task)[0] in "RD" for task in (process / "task").iterdir()):
                return True
        except OSError:  # it has just ended
            return True
    return False


def _stat(process: Path) -> list[str]:
    """Return what Linux says of a process or thread after its name: state, parent..."""
    return (process / "stat").read_text().rpartition(")")[2].split()
