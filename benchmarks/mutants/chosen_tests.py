"""Choose the tests of a module: those of the files that import it most directly."""

import ast
import collections
import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("tfdml", "serving")


def dotted(module: str) -> str:
    """Return the name of a module whose file is given."""
    parts = Path(module).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


class Imports:
    """Which modules of a tree import which, names of packages followed to their source.

    Args:
        tree: Folder with the packages and `tests`.
    """

    def __init__(self, tree: Path) -> None:
        self.files: dict[str, Path] = {}
        self._parsed: dict[str, ast.Module] = {}
        for top in (*PACKAGES, "tests"):
            for file in sorted((tree / top).rglob("*.py")):
                name = dotted(file.relative_to(tree).as_posix())
                stub = file.with_suffix(".pyi")  # of what is imported when needed
                text = (stub if stub.exists() else file).read_text(encoding="utf-8")
                self.files[name], self._parsed[name] = file, ast.parse(text)
        self.importers: dict[str, set[str]] = collections.defaultdict(set)
        for name in self.files:
            for imported in self._imports(name):
                self.importers[imported].add(name)

    def distances(self, name: str) -> dict[str, int]:
        """Return how many imports lie between a module and each that needs it."""
        found: dict[str, int] = {}
        new, distance = {name}, 0
        while new:
            found |= dict.fromkeys(sorted(new), distance)
            new = {x for name in new for x in self.importers[name]} - found.keys()
            distance += 1
        return found

    def _imports(self, name: str) -> set[str]:
        found: set[str | None] = set()
        packages: dict[str, str] = {}
        for node in ast.walk(self._parsed[name]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                parent = self._parent(name, node)
                for alias in node.names:
                    source = self._source(parent, alias.name)
                    found.add(source)
                    if source == f"{parent}.{alias.name}":
                        packages[alias.asname or alias.name] = source
        for node in ast.walk(self._parsed[name]):
            match node:
                case ast.Attribute(ast.Name(package), attribute):
                    if package in packages:
                        found.add(self._source(packages[package], attribute))
        return {module for module in found if module in self.files} - {name}

    def _parent(self, name: str, node: ast.ImportFrom) -> str:
        """Return the module that is imported from, a relative one made absolute."""
        if not node.level:
            return node.module or ""
        parts = name.split(".")
        is_package = self.files[name].name == "__init__.py"
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @functools.cache  # noqa: B019 - there is one as long as the process lives
    def _source(self, module: str, name: str) -> str | None:
        """Return the module of this tree that a name of a module comes from."""
        if f"{module}.{name}" in self.files:
            return f"{module}.{name}"
        if module not in self.files:
            return None
        if self.files[module].name == "__init__.py":
            for node in ast.walk(self._parsed[module]):
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        if (alias.asname or alias.name) == name:
                            return self._source(self._parent(module, node), alias.name)
        return module


def tests_of(imports: Imports, module: str, most: int) -> list[str]:
    """Return the files of tests that are nearest to a module, the nearest first."""

    def words(name: str) -> set[str]:
        found = re.findall("[a-z0-9]+", name.replace("_", " "))
        return {word.removesuffix("s").removesuffix("e") for word in found}

    name = dotted(module)
    stem, own = words(name.rpartition(".")[2]), words(name) - words(" ".join(PACKAGES))
    ranked = []
    for test, distance in imports.distances(name).items():
        if not test.rpartition(".")[2].startswith("test_"):
            continue
        about = words(test)
        is_of_all = about & words("common every") and own & about
        named = stem <= about or is_of_all
        size = imports.files[test].stat().st_size
        ranked.append((distance - 2 * bool(named), -len(own & about), size, test))
    return [test.replace(".", "/") + ".py" for *_, test in sorted(ranked)[:most]]


class Selection:
    """Plugin of pytest: which tests run, in which order, and what becomes of them.

    Args:
        imports: Of the tree.
        module: File that is tested.
        tests: Files of tests, the nearest first, or a test.
        known: CPU seconds of tests on the code as it is; None: it does not pass.
        seconds: CPU seconds after which no more tests start.
        report: File that each test is written to when it starts and when it ends.
    """

    def __init__(
        self,
        imports: Imports,
        module: str,
        tests: Sequence[str],
        known: Mapping[str, float | None],
        seconds: float,
        report: Path,
    ) -> None:
        self.imports, self.module, self.tests = imports, dotted(module), list(tests)
        self.known, self.seconds, self.report = known, seconds, report
        self._failed: set[str] = set()
        self._spent = self._started = 0.0

    def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> None:
        """Keep the tests that are worth their time, the quick ones first."""
        self._session = session
        files = [test.split("::")[0] for test in self.tests]

        def rank(item: Any) -> int:
            return files.index(item.nodeid.split("::")[0])

        def cost(item: Any) -> float:
            is_slow = item.get_closest_marker("slow") is not None
            return self.known.get(item.nodeid) or (1.0 if is_slow else 0.1)

        left_out = self._of_other_losses(items)
        left_out |= {name for name, seconds in self.known.items() if seconds is None}
        kept = [item for item in items if item.nodeid not in left_out]
        chosen: set[str] = set()
        total = 0.0
        for item in sorted(kept, key=lambda item: cost(item) * (1 + rank(item))):
            total += cost(item)
            if chosen and total > self.seconds:
                break
            chosen.add(item.nodeid)
        items[:] = [item for item in kept if item.nodeid in chosen]
        items.sort(key=lambda item: (cost(item) > self.seconds / 10, rank(item)))

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self._write(report.nodeid, 0, False)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a test starts, which may never end."""
        self._write(nodeid, 0, None)
        self._started = sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note whether a part of a test failed."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note what became of a test, and stop when the time is over."""
        seconds = sum(os.times()[:4]) - self._started
        self._write(nodeid, seconds, nodeid not in self._failed)
        self._spent += seconds
        if self._spent > self.seconds:
            self._session.shouldstop = "time is over"

    def _write(self, name: str, seconds: float, passed: bool | None) -> None:
        with self.report.open("a", encoding="utf-8") as file:
            print(json.dumps([name, round(seconds, 3), passed]), file=file)

    def _of_other_losses(self, items: Sequence[Any]) -> set[str]:
        """Return the tests of every loss that are left out: a few of these losses run.

        They are those of the module, or else those derived from one of the module, or
        else those whose module imports it.
        """
        entries: dict[str, tuple[int, list[str]]] = {}
        for item in items:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            for value in params.values():
                if hasattr(getattr(value, "loss", None), "get_config"):
                    types = [x.__module__ for x in type(value.loss).__mro__]
                    entries[item.nodeid] = id(value), types
        near = self.imports.importers[self.module]
        chosen: list[int] = []
        for wanted in (
            [x for x, types in entries.values() if types[0] == self.module],
            [x for x, types in entries.values() if self.module in types],
            [x for x, types in entries.values() if types[0] in near],
        ):
            chosen = chosen or list(dict.fromkeys(wanted))[:5]
        return {name for name, (x, _) in entries.items() if x not in chosen}
