"""Name the extra that brings a package, where an import of ours does not find it."""

import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType

_ROOT = str(Path(__file__).parents[1])
_APPLICATIONS = ("training", "serving")
_BACKENDS = ("tensorflow", "jax", "torch")

# What is imported under another name than it is installed by. Names that differ in
# `_`, `-` and capitals alone need no entry.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "mlflow": "mlflow-skinny",
    "multipart": "python-multipart",
    # Its parts come from several distributions, of which others may bring the first.
    "opentelemetry": "opentelemetry-sdk",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "ot": "pot",
    "sklearn": "scikit-learn",
    "tensorflow_serving": "tensorflow-serving-api",
}

# They hold other extras, or are for work on tfdml itself.
_COLLECTIONS = ("all", "dev", "docs", "test", "test-data")

_REQUIREMENT = re.compile(r"""([\w.-]+).*\bextra == ['"]([\w-]+)['"]""")


class MissingPackageError(ModuleNotFoundError):
    """A package of an extra is not installed. The message says how to get it."""


class _AfterAllFinders(MetaPathFinder):
    """Asked last, of what no other finder has found. It explains, and finds nothing."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Raise the error that names the extra, if it was tfdml that imported.

        Raises:
            MissingPackageError: An extra brings the package.
        """
        if path is not None and fullname not in _DISTRIBUTIONS:
            return None
        importers = list(_importers())
        first = importers[0] if importers else ""
        is_backend = fullname in _BACKENDS and first.partition(".")[0] == "keras"
        if not is_backend and not _application_or_library(first):
            return None
        extras = extras_of(fullname, _installed_requirements())
        # A command needs all packages of its application.
        if "tfdml.command_line" in importers:
            running = {_application_or_library(name) for name in importers}
            extras = [extra for extra in extras if extra in running] or extras
            is_backend = is_backend and not running & set(extras)
        if is_backend:
            raise MissingPackageError(_no_backend(fullname), name=fullname)
        if not extras:
            return None
        raise MissingPackageError(
            f"No module named '{fullname}'. It comes with an extra: "
            f'pip install "tfdml[{extras[0]}]"',
            name=fullname,
        )


def install() -> None:
    """Explain imports that fail from now on."""
    if not any(isinstance(finder, _AfterAllFinders) for finder in sys.meta_path):
        sys.meta_path.append(_AfterAllFinders())


def extras_of(module: str, requirements: Iterable[str]) -> list[str]:
    """Return the extras that bring a package, the smallest first.

    Args:
        module: The name it is imported by.
        requirements: Those of tfdml, as its metadata list them.
    """
    wanted = _normalized(_DISTRIBUTIONS.get(module, module))
    sizes: dict[str, int] = {}
    found = []
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is None or match[2] in _COLLECTIONS:
            continue
        sizes[match[2]] = sizes.get(match[2], 0) + 1
        if _normalized(match[1]) == wanted:
            found.append(match[2])
    return sorted(found, key=lambda extra: (sizes[extra], extra))


def _normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _installed_requirements() -> list[str]:
    try:
        return importlib.metadata.requires("tfdml") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout, not installed
        return []


def _importers() -> Iterator[str]:
    """Yield the names of the modules that import, from the innermost outward."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("importlib._bootstrap"):
            ours = _application_or_library(name)
            # Others have a package `training` of their own.
            if not ours or frame.f_code.co_filename.startswith(_ROOT):
                yield name
        frame = frame.f_back


def _application_or_library(module: str) -> str:
    """Return "tfdml", "training" or "serving"; empty for a module of others."""
    first, _, rest = module.partition(".")
    inner = rest.partition(".")[0]
    if first == "tfdml" and inner in _APPLICATIONS:
        return inner
    return first if first in ("tfdml", *_APPLICATIONS) else ""


def _no_backend(wanted: str) -> str:
    others = [b for b in _BACKENDS if b != wanted and importlib.util.find_spec(b)]
    remedy = f'Install it: pip install "tfdml[{wanted}]"'
    if others:
        remedy += f", or use what is installed: set KERAS_BACKEND={others[0]}."
    elif wanted == "tensorflow" and "KERAS_BACKEND" not in os.environ:
        remedy += ', or install "tfdml[jax]" and set KERAS_BACKEND=jax.'
    return f"No module named '{wanted}', which is Keras' backend. {remedy}"
