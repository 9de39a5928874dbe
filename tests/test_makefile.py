"""The commands of `make demo`, which are printed and not run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.closed_port import closed_port

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is missing")


def dry(tmp_path, *arguments):
    """Return what make would do in a checkout where nothing was made yet."""
    return run(tmp_path, "--dry-run", *arguments)


def run(tmp_path, *arguments, **settings):
    """Run make in a checkout where nothing was made yet."""
    for name in ("Makefile", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    known = {k: v for k, v in os.environ.items() if k not in ("MINUTES", "MAKEFLAGS")}
    return subprocess.run(
        ["make", *arguments],
        cwd=tmp_path,
        env=known | settings,
        capture_output=True,
        text=True,
        check=False,
    )


def test_demo_installs_its_own_extra(tmp_path):
    printed = dry(tmp_path, "demo").stdout
    assert "'.[demo]'" in printed
    assert "'.[dev]'" not in printed
    assert "--run runs/demo " in printed
    assert "--minutes" not in printed


def test_demo_in_other_minutes_has_a_run_of_its_own(tmp_path):
    printed = dry(tmp_path, "demo", "MINUTES=15").stdout
    assert "--run runs/demo-15-minutes --minutes 15" in printed
    assert "-m serving demo runs/demo-15-minutes indexes/demo-15-minutes" in printed


@pytest.mark.parametrize(
    ("minutes", "recipe"), [("9.5", "demo"), ("10", "demo_long"), ("15", "demo_long")]
)
def test_long_demo_trains_a_larger_network(tmp_path, minutes, recipe):
    printed = dry(tmp_path, "demo", f"MINUTES={minutes}").stdout
    assert f"training fit training/recipes/{recipe}.toml --images" in printed


def test_tests_after_a_demo_install_the_rest(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "installed-demo").touch()
    assert "'.[dev]'" in dry(tmp_path, "test-fast").stdout


def test_whoever_installs_everything_has_what_the_demo_needs(tmp_path):
    installed = dry(tmp_path, "install").stdout
    assert "touch .venv/installed .venv/installed-demo" in installed


def test_two_numbers_of_minutes_are_refused(tmp_path):
    done = dry(tmp_path, "demo", "MINUTES=4 15")
    assert done.returncode != 0
    assert "MINUTES must be one number. Received: '4 15'" in done.stderr


@pytest.mark.slow
def test_demo_without_a_network_says_what_to_do_and_can_be_made_again(tmp_path):
    with closed_port() as port:
        index = f"http://127.0.0.1:{port.getsockname()[1]}/simple"
        done = run(
            tmp_path,
            "demo",
            f"PYTHON={sys.executable}",
            PIP_CONFIG_FILE=os.devnull,
            PIP_INDEX_URL=index,
            PIP_RETRIES="0",
        )
    assert done.returncode != 0
    assert "No matching distribution found" in done.stderr
    assert "error: the packages could not be installed; pip has said" in done.stderr
    # So that make installs the rest when it runs again.
    assert not list((tmp_path / ".venv").glob("installed*"))
