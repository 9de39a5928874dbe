"""The wheel, and the source distribution, hold what they are to bring."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.setup_arguments import setup_arguments

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PARTS = {"tfdml": "tfdml", "training": "tfdml/training", "serving": "tfdml/serving"}
SOURCES = (".ci", "benchmarks", "docs", "tests", *PARTS)
SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")
FILES = (
    *(".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff"),
    *("CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md"),
    *("mkdocs.yml", "pyproject.toml", "setup.py"),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build both from a copy, so that nothing is left in the checkout."""
    pytest.importorskip("build")
    source = tmp_path_factory.mktemp("built") / "source"
    source.mkdir()
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=SKIPPED)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    # The wheel is built from the source distribution.
    done = subprocess.run(
        [sys.executable, "-m", "build", source], capture_output=True, text=True
    )
    output = done.stdout + done.stderr
    if done.returncode and "No matching distribution" in output:
        pytest.skip("the build needs setuptools from a package registry")
    assert done.returncode == 0, output
    return source


@pytest.fixture(scope="module")
def wheel(built):
    (file,) = built.glob("dist/*.whl")
    return file


def files_of(folder):
    return [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"]


def test_the_source_distribution_has_what_its_tests_read(built):
    (file,) = built.glob("dist/*.tar.gz")
    with tarfile.open(file) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        p.relative_to(ROOT).as_posix() for s in SOURCES for p in files_of(ROOT / s)
    }
    assert wanted | set(FILES) <= there


def test_the_wheel_has_every_file_of_the_library_and_the_applications(wheel):
    there = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"{target}/{path.relative_to(ROOT / part).as_posix()}"
        for part, target in PARTS.items()
        for path in files_of(ROOT / part)
    }
    assert {name for name in there if ".dist-info/" not in name} == wanted


def test_the_metadata_say_what_it_is(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    extras = setup_arguments()["extras_require"]
    assert set(metadata.get_all("Provides-Extra")) == set(extras)


def test_commands_run_from_the_wheel_alone(wheel, tmp_path):
    site = tmp_path / "site"
    shutil.unpack_archive(wheel, site, "zip")
    code = (
        "import sys, tfdml, tfdml.__main__ as command\n"
        "try: command.main(['index', 'build', '--help'])\n"
        "except SystemExit: pass\n"
        "from tfdml.training.recipe.recipe import read_recipe\n"
        "import tfdml.serving.search.app.page_files\n"
        "print(read_recipe('demo', images='x').data.images)\n"
        "ours = [m for m in sys.modules.values() if m.__name__.startswith('tfdml.')]\n"
        "files = {m.__file__ for m in ours}\n"
        "outside = {f for f in files if not f.startswith(sys.argv[1])}\n"
        "outside |= {'training', 'serving'} & set(sys.modules)\n"
        "sys.exit(str(outside) if outside else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: tfdml index build ")
    assert done.stdout.endswith("\nx\n")
