"""Write docs/api.md: each public name of the library, once, with its first sentence.

`make api` runs it; a test holds the page to what it writes.
"""

import ast
import importlib
import inspect
import itertools
from pathlib import Path

PAGE = Path(__file__).parent / "api.md"

ROOMS = (
    "losses",
    "layers",
    "models",
    "ops",
    "batch_designs",
    "metrics",
    "neighbors",
    "images",
    "export",
    "index",
    "plots",
    "tfa",
)

_HEAD = """# API reference

Every public name of the library, by module. `import tfdml` is enough: `tfdml.losses`
and the other modules are loaded when they are first used.
`help(tfdml.losses.TripletLoss)` shows arguments, shapes, errors and an example. The
applications are commands: see [training](training.md) and [serving](serving.md). You
can also use [the client](client.md) from Python.
"""


def page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(_section(room) for room in ROOMS)


def _section(room: str) -> str:
    """Return the section of one room."""
    face = importlib.import_module(f"tfdml.{room}")
    about = (face.__doc__ or "").strip().splitlines()[0]
    rows = [
        f"| `{name}` | {_summary(face, name)} |\n"
        for name in sorted(face.__all__, key=lambda name: (name.lower(), name))
    ]
    head = f"\n## tfdml.{room}\n\n{about}\n\n| name | |\n| --- | --- |\n"
    return head + "".join(rows)


def _summary(face: object, name: str) -> str:
    """Return the first sentence of what documents a name."""
    value = getattr(face, name)
    own = getattr(value, "__module__", "").startswith("tfdml.")
    if own and (inspect.isclass(value) or inspect.isfunction(value)):
        text = inspect.getdoc(value) or ""
    else:
        text = _text_below(face, name)
    first = " ".join(text.split("\n\n")[0].split())
    if not first:
        raise ValueError(f"`{name}` of {face} must have a docstring. Received: none.")
    return first.replace("|", r"\|")


def _text_below(face: object, name: str) -> str:
    """Return the string that follows the assignment of a constant or a type."""
    folder = Path(inspect.getfile(face)).parent  # type: ignore[arg-type]
    for path in sorted(folder.parent.rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, below in itertools.pairwise(body):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if name in [getattr(target, "id", None) for target in targets]:
                value = getattr(below, "value", None)
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    return value.value
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
