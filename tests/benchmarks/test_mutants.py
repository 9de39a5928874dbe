"""Mutants change what they say, and are found again when code moves."""

import ast
import json

import pytest

from benchmarks.mutants import __main__ as mutants
from benchmarks.mutants import chosen_tests
from benchmarks.mutants.changes import find_again, mutants_in, mutants_of

SOURCE = '''
"""A module of 3 functions."""
LEAST = 1


class Loss:
    """Not -1."""

    def call(self, x: Literal[4], *, normalize: bool = True) -> Literal[5]:
        if x <= 0 and not self.ready:
            raise ValueError(f"Less than {1 + 1}.")
        return -x * max(x, -2)


def joined(words):
    return "a" + words if words else None
'''
CHANGES = [
    ("Loss.call", "truth", "True", "False"),
    ("Loss.call", "boolean", "x <= 0 and (not self.ready)", "x <= 0 or not self.ready"),
    (
        "Loss.call",
        "if",
        "x <= 0 and (not self.ready)",
        "not (x <= 0 and (not self.ready))",
    ),
    ("Loss.call", "compare", "x <= 0", "x < 0"),
    ("Loss.call", "number", "0", "1"),
    ("Loss.call", "not", "not self.ready", "self.ready"),
    ("Loss.call", "arithmetic", "-x * max(x, -2)", "-x / max(x, -2)"),
    ("Loss.call", "minus", "-x", "x"),
    ("Loss.call", "call", "max(x, -2)", "min(x, -2)"),
    ("Loss.call", "number", "-2", "-3"),
    ("joined", "if", "words", "not words"),
]


def test_mutants_are_those_counted_by_hand():
    found = [(m.function, m.kind, m.text, m.becomes) for m in mutants_of(SOURCE)]
    assert found == CHANGES


@pytest.mark.parametrize("index", range(len(CHANGES)), ids=[x[1] for x in CHANGES])
def test_mutant_changes_its_expression_alone(index):
    parsed = ast.parse(SOURCE)
    mutant = mutants_of(parsed)[index]
    mutant.apply()
    changed = ast.unparse(parsed).splitlines()
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    (line,) = [x for x, y in zip(changed, before, strict=True) if x != y]
    assert mutant.becomes in line


def written(tree, files):
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, "utf-8")
    return [tree / name for name in files]


def test_mutant_is_found_again_after_a_move(tmp_path):
    moved = SOURCE.replace("x <= 0", "y <= 0").replace("def joined", "def _joined")
    files = {"b/_loss.py": moved, "b/other.py": SOURCE.replace("Loss", "Other")}
    there = mutants_in(tmp_path, written(tmp_path, files))
    for mutant in mutants_of(SOURCE, "a/loss.py"):
        found = find_again(mutant, there)
        assert found.module == "b/_loss.py"
        assert (found.kind, found.nth) == (mutant.kind, mutant.nth)


def test_mutant_that_is_gone_is_not_found(tmp_path):
    files = {
        "a/loss.py": SOURCE.replace("-x * max(x, -2)", "x").replace("Loss", "Cost")
    }
    there = mutants_in(tmp_path, written(tmp_path, files))
    wanted = [m for m in mutants_of(SOURCE, "a/loss.py") if m.kind == "minus"]
    assert [find_again(mutant, there) for mutant in wanted] == [None]


def test_tests_that_import_a_module_most_directly_come_first(tmp_path):
    files = {
        "tfdml/losses/__init__.py": "from tfdml.losses._deep import Deep",
        "tfdml/losses/_deep.py": "from tfdml.ops import unit",
        "tfdml/ops/__init__.py": "import lazy_loader",
        "tfdml/ops/__init__.pyi": "from ._norms import unit",
        "tfdml/ops/_norms.py": "",
        "tests/test_deep.py": "from tfdml import losses\nlosses.Deep",
        "tests/test_norms.py": "from tfdml.losses import Deep",
        "tests/test_others.py": "from tfdml.ops import unit",
        "tests/test_nothing.py": "import numpy",
    }
    written(tmp_path, files)
    imports = chosen_tests.Imports(tmp_path)
    deep = chosen_tests.tests_of(imports, "tfdml/losses/_deep.py", 2)
    assert deep == ["tests/test_deep.py", "tests/test_norms.py"]
    # Its name makes up for the detour.
    norms = chosen_tests.tests_of(imports, "tfdml/ops/_norms.py", 2)
    assert norms == ["tests/test_norms.py", "tests/test_others.py"]


def test_report_counts_mutants_that_are_in_both_runs(tmp_path, monkeypatch, capsys):
    mutant = {x: x for x in mutants._FIELDS} | {"area": "index", "now": "index.py"}
    lines = [
        {**mutant, "when": when, "nth": nth, "caught": caught}
        for when, outcomes in {
            "before": [True, True, False],
            "after": [True, False, None],
        }.items()
        for nth, caught in enumerate(outcomes)
    ]
    results = tmp_path / "results.jsonl"
    results.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    monkeypatch.setattr(mutants, "RESULTS", results)
    mutants.report(survivors=False)
    out = capsys.readouterr().out
    (line,) = [x for x in out.splitlines() if x.startswith("index ")]
    assert line.split() == ["index", "2", "2", "1"]
    assert out.count("lost: index.py, function: text -> becomes in statement") == 1
