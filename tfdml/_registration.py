"""Let Keras find the classes of tfdml in a saved model, and import them only then.

Keras knows a class once its module has registered it, which imports Keras. So that
`import tfdml` alone is enough to load a model and still imports neither Keras nor its
backend, stand-ins are registered as soon as Keras is imported. A stand-in imports the
real class when a model needs it; the real class takes its place when it is registered.
"""

import ast
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_FACES = ("layers", "losses", "metrics", "models", "tfa")
_FUNCTIONS = {
    "binlifted_weights": "tfdml.losses",
    "caption_distance": "tfdml.ops",
    "segmentation_distance": "tfdml.ops",
    "squared_label_distance": "tfdml.ops",
}


class _AfterKeras(MetaPathFinder):
    """Register the stand-ins as soon as Keras has been imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find Keras by the other finders, and append to what its import executes."""
        if fullname != "keras":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find and finder is not self else None
            if spec is not None:
                self._extend(spec.loader)
                return spec
        return None

    def _extend(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # One loader may serve several modules, as that of a zip file does.
            if module.__name__ == "keras" and self in sys.meta_path:
                sys.meta_path.remove(self)
                add_stand_ins()

        loader.exec_module = exec_module


def install() -> None:
    """Register the stand-ins, now or when Keras is imported, if it ever is."""
    if sys.modules.get("keras"):
        add_stand_ins()
    else:
        sys.meta_path.insert(0, _AfterKeras())


def add_stand_ins() -> None:
    """Register a stand-in for each class and function not yet registered itself."""
    import keras

    registered = keras.saving.get_custom_objects()
    for name, module in class_modules().items():
        registered.setdefault(name, _stand_in_class(module, name.partition(">")[2]))
    for name, module in _FUNCTIONS.items():
        if f"tfdml>{name}" not in registered:
            register = keras.saving.register_keras_serializable("tfdml", name)
            register(_stand_in_function(module, name))


def class_modules() -> dict[str, str]:
    """Map each class that Keras may load, as "tfdml>Name", to the module it is in.

    The names are read from the source of the public modules, which are not imported.
    """
    modules = {}
    for face in _FACES:
        package = "Addons" if face == "tfa" else "tfdml"
        for name in _public_classes(face):
            modules[f"{package}>{name}"] = f"tfdml.{face}"
    return modules


def original(function: Callable) -> Callable:
    """Return the function that a stand-in calls; other functions as they are."""
    find = getattr(function, "find_original", None)
    return find() if find else function


def _public_classes(face: str) -> list[str]:
    root = Path(__file__).parent
    files = (
        root / f"{face}.py",
        root / face / "__init__.pyi",
        root / face / "__init__.py",
    )
    source = next(file for file in files if file.exists())
    names = []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if source.parent == root and isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif source.parent != root and isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names]
    return [name for name in names if name[0].isupper()]


def _stand_in_class(module: str, name: str) -> type:
    class StandIn:
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _imported(module, name)(*args, **kwargs)

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Any:
            return _imported(module, name).from_config(config)

    StandIn.__name__ = StandIn.__qualname__ = name
    return StandIn


def _stand_in_function(module: str, name: str) -> Callable:
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return _imported(module, name)(*args, **kwargs)

    stand_in.__name__ = stand_in.__qualname__ = name
    stand_in.find_original = lambda: _imported(module, name)  # type: ignore[attr-defined]
    return stand_in


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)
