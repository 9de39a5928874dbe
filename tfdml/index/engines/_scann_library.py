"""Import ScaNN without TensorFlow.

ScaNN needs only NumPy and protobuf, but its `__init__` also loads its TensorFlow
operators where it finds TensorFlow. That takes 10 seconds of CPU time and 800 MB, and
fails beside any TensorFlow other than 2.20. So its `__init__` is told that there is no
TensorFlow, for which it is prepared. Nobody else is told: other threads may import
TensorFlow at the same moment.
"""

import builtins
import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tfdml.messages import shortened

_IMPORTING = threading.Lock()


def import_scann() -> Any:
    """Return the module of ScaNN that works on NumPy arrays.

    Raises:
        ImportError: ScaNN cannot be imported here.
    """
    try:
        with _IMPORTING, _without_tensorflow():
            # Slow, and needed by one class only.
            return importlib.import_module("scann.scann_ops.py.scann_ops_pybind")
    except Exception as error:  # a broken library raises anything
        raise ImportError(
            f"ScaNN cannot be imported here ({type(error).__name__}: "
            f'{shortened(error)}). Install it with: pip install "tfdml[search]", which '
            "brings it for Linux and Python up to 3.13, and FAISS for all others."
        ) from error


@contextmanager
def _without_tensorflow() -> Iterator[None]:
    """Let ScaNN be imported as where there is no TensorFlow."""
    finder = _ScannFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _ScannFinder(MetaPathFinder):
    """Finds ScaNN as the other finders do, with a loader that hides TensorFlow."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return ScaNN's spec; None for all other modules."""
        if name != "scann":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _HidingLoader(spec.loader)
                return spec
        return None


class _HidingLoader(Loader):
    """Runs a module that cannot import TensorFlow.

    Args:
        loader: Loads the module otherwise.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Do as the other loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with an `import` of its own."""
        # Python takes `__import__` from the built-ins of the module that imports.
        hiding = {**vars(builtins), "__import__": _import_but_tensorflow}
        vars(module)["__builtins__"] = hiding
        try:
            self._loader.exec_module(module)
        finally:
            vars(module)["__builtins__"] = builtins
            if module.__spec__ is not None:
                module.__spec__.loader = self._loader
            module.__loader__ = self._loader


def _import_but_tensorflow(name: str, *arguments: Any, **more: Any) -> ModuleType:
    if name.partition(".")[0] == "tensorflow":
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    return builtins.__import__(name, *arguments, **more)
