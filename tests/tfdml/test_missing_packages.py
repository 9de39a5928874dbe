"""A package that is missing is named with the extra that brings it."""

import ast
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import tfdml
from tests.support.setup_arguments import requirements, setup_arguments
from tfdml import _missing_packages
from tfdml._missing_packages import (
    MissingPackageError,
    _AfterAllFinders,
    extras_of,
)

ROOT = Path(tfdml.__file__).parents[1]
PARTS = ("tfdml", "training", "serving")
CORE = {"filelock", "keras", "lazy_loader", "numpy", "rich"}

# What is imported only where it is installed, or only beside what requires it.
BESIDE = {
    "argcomplete": "a shell that completes has it",
    "fsspec": "the packages of all clouds require it",
    "ml_dtypes": "Keras requires it",
}


def third_party_imports():
    """Return (package, importing module) for each import of others' packages."""
    found = set()
    for path in sorted(p for part in PARTS for p in (ROOT / part).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                first = name.partition(".")[0]
                if first == "google":
                    first = "google.protobuf"
                known = sys.stdlib_module_names | CORE | BESIDE.keys() | set(PARTS)
                if first not in known:
                    found.add((first, module))
    return sorted(found)


@pytest.fixture
def without(monkeypatch):
    """Hide a package, as if it were not installed."""
    monkeypatch.setattr(_missing_packages, "_installed_requirements", requirements)
    hidden = []
    find = PathFinder.find_spec

    def find_others(name, path=None, target=None):
        return None if name in hidden else find(name, path, target)

    monkeypatch.setattr(PathFinder, "find_spec", find_others)
    # pytest has a finder of its own, which kept the first `find_spec`.
    last = next(f for f in sys.meta_path if isinstance(f, _AfterAllFinders))
    monkeypatch.setattr(sys, "meta_path", [PathFinder, last])

    def hide(package):
        hidden.append(package)
        monkeypatch.delitem(sys.modules, package, raising=False)

    return hide


def import_from(module, package):
    """Run an import as the file of the module would."""
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    code = compile(f"import {package}", str(file), "exec")
    exec(code, {"__name__": module})  # noqa: S102


def test_the_core_is_what_every_installation_has():
    named = {r.split(">")[0] for r in setup_arguments()["install_requires"]}
    assert {name.replace("-", "_") for name in named} == CORE


@pytest.mark.parametrize(("package", "module"), third_party_imports())
def test_a_missing_package_is_named_with_its_extra(package, module, without):
    without(package)
    with pytest.raises(MissingPackageError) as caught:
        import_from(module, package)
    message = str(caught.value)
    assert caught.value.name == package
    assert repr(package) in message
    extra = message.split('pip install "tfdml[')[1].split("]")[0]
    assert extra in extras_of(package, requirements())


def test_imports_of_others_fail_as_they_do(without):
    without("scann")
    with pytest.raises(ModuleNotFoundError) as caught:
        import_from("someone.training", "scann")
    assert not isinstance(caught.value, MissingPackageError)


def test_a_package_that_no_extra_brings_fails_as_it_does(without):
    with pytest.raises(ModuleNotFoundError) as caught:
        import_from("tfdml.images", "no_such_package")
    assert not isinstance(caught.value, MissingPackageError)


def test_the_smallest_extra_comes_first():
    assert extras_of("PIL", requirements())[0] == "images"
    assert extras_of("sklearn", requirements())[0] == "evaluation"
    assert extras_of("httpx2", requirements())[0] == "client"
    assert extras_of("keras", requirements()) == []


def test_a_command_needs_the_extra_of_its_application(without):
    without("PIL")
    code = "def run(find): find()"
    command = {"__name__": "tfdml.command_line"}
    exec(compile(code, str(ROOT / "tfdml" / "command_line.py"), "exec"), command)  # noqa: S102
    with pytest.raises(MissingPackageError, match=r'"tfdml\[serving\]"'):
        command["run"](lambda: import_from("serving.search.app.thumbnails", "PIL"))


def test_a_backend_that_is_missing_can_be_installed_or_chosen(without):
    without("torch")
    with pytest.raises(MissingPackageError, match=r"KERAS_BACKEND=(tensorflow|jax)"):
        import_from("keras.src.backend.torch", "torch")
