"""`make` finds a Python that it can use, or says what to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not shutil.which("make") or not shutil.which("sh"), reason="make is not installed"
)


@pytest.fixture
def make(tmp_path):
    """Run make where the only Pythons are those that are given, by what they do."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("make", "sh", "echo", "touch", "cksum", "cut"):
        (tools / tool).symlink_to(shutil.which(tool))

    def run(pythons, *words):
        for name, script in pythons.items():
            file = tools / name
            file.write_text(f"#!{shutil.which('sh')}\n{script}\n")
            file.chmod(0o755)
        return subprocess.run(
            ["make", f"VENV={tmp_path / 'venv'}", *words],
            cwd=ROOT,
            env={"PATH": str(tools), "HOME": os.environ.get("HOME", "/")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


SHOW = ("--eval", "show: ; @echo chosen: $(PYTHON)", "show")
GOOD, FAILING = "exit 0", "echo 'pyenv: command not found' >&2; exit 127"


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3.11": GOOD, "python3.13": GOOD, "python3": GOOD}, "python3.13"),
        ({"python3.11": GOOD, "python3.12": GOOD, "python3.13": FAILING}, "python3.12"),
        ({"python3.11": FAILING, "python3": GOOD}, "python3"),
        ({"python3.11": FAILING}, ""),
    ],
)
def test_the_newest_python_that_runs_is_taken(make, pythons, chosen):
    assert make(pythons, *SHOW).stdout.strip() == f"chosen: {chosen}".strip()


def test_a_chosen_python_is_taken(make):
    done = make({"python3.13": GOOD}, "PYTHON=/opt/python", *SHOW)
    assert done.stdout == "chosen: /opt/python\n"


@pytest.mark.parametrize(
    ("words", "tried"),
    [
        ([], "Tried: python3.13 python3.12 python3.11 python3."),
        (["PYTHON=python3.9"], "Tried: python3.9."),
    ],
)
def test_no_python_ends_with_what_to_do(make, words, tried, tmp_path):
    done = make({"python3.9": "exit 1"}, "install", *words)
    assert done.returncode != 0
    assert tried in done.stderr
    assert "python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()
