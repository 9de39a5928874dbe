"""Find the mutants of a source: one changed expression each, known when code moves."""

import ast
import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

_SWAPS: dict[type, type] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}
_OPPOSITE = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_NAMES = {
    **{"min": "max", "minimum": "maximum", "logical_and": "logical_or"},
    **{"any": "all", "argmin": "argmax"},
}
_CALLS = _NAMES | {new: old for old, new in _NAMES.items()}
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list"}
_SKIPPED_STATEMENTS = re.compile(r"if (typing\.)?TYPE_CHECKING|warnings\.warn")


@dataclasses.dataclass
class Mutant:
    """One change of one expression.

    Attributes:
        module: Its file, relative to the tree.
        function: Qualified name of its function or method.
        kind: What is changed, as "compare".
        nth: Its place among the mutants of this kind in the function.
        text: The expression as it is.
        becomes: The expression after the change.
        statement: First line of the statement around it.
        area: What it was sampled for.
        place: Node, field and index in the parsed file, and what to put there.
    """

    module: str
    function: str
    kind: str
    nth: int
    text: str
    becomes: str
    statement: str
    area: str = ""
    place: tuple[Any, str, int | None, ast.AST] | None = None

    def apply(self) -> None:
        """Change the parsed file that it was found in."""
        if self.place is None:
            raise ValueError("The mutant is not of a parsed file.")
        parent, field, index, node = self.place
        if index is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[index] = node


def mutants_of(source: str | ast.Module, module: str = "") -> list[Mutant]:
    """Return all mutants of the functions of a source, in order.

    Docstrings, annotations, decorators, messages and what is raised are left alone.

    Args:
        source: Python source, or what `ast.parse` makes of it: its mutants apply to it.
        module: File that it is from.
    """
    found: list[Mutant] = []
    counts: collections.Counter[tuple[str, str]] = collections.Counter()

    def visit(
        node: ast.AST, names: tuple[str, ...], inside: bool, statement: str
    ) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = (*names, node.name)
            inside = inside or not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.stmt):
            lines = ast.unparse(node).splitlines()
            statement = next(line for line in lines if not line.startswith("@"))
        for child, field, index in _children(node):
            function = ".".join(names)
            for kind, new in _changes(child, node, field) if inside else ():
                found.append(
                    Mutant(
                        module,
                        function,
                        kind,
                        counts[function, kind],
                        ast.unparse(child),
                        ast.unparse(new),
                        statement,
                        place=(node, field, index, new),
                    )
                )
                counts[function, kind] += 1
            if not _is_negative(child):
                visit(child, names, inside, statement)

    parsed = source if isinstance(source, ast.Module) else ast.parse(source)
    visit(parsed, (), False, "")
    return found


def mutants_in(tree: Path, files: Iterable[Path]) -> list[Mutant]:
    """Return all mutants of some files of a tree; they can not be applied."""
    found: list[Mutant] = []
    for file in files:
        name = file.relative_to(tree).as_posix()
        found += mutants_of(file.read_text(encoding="utf-8"), name)
    for mutant in found:
        mutant.place = None
    return found


def find_again(wanted: Mutant, mutants: Sequence[Mutant]) -> Mutant | None:
    """Find a mutant in code that has moved, or changed a little.

    The function of the same name, whatever its file, has the same change of the same
    text; or else, in a file of the same name, the same change at the same place; or
    else just one function of another name has the same statement.
    """

    def same_file(mutant: Mutant) -> bool:
        return _bare(Path(mutant.module).stem) == _bare(Path(wanted.module).stem)

    alike = [m for m in mutants if m.kind == wanted.kind]
    here = [m for m in alike if _bare(m.function) == _bare(wanted.function)]
    found = [m for m in here if m.text == wanted.text]
    if not found:
        found = [m for m in here if m.nth == wanted.nth and same_file(m)]
    if not found and not wanted.statement.startswith(("def ", "return ")):
        line = wanted.text, wanted.statement
        found = [m for m in alike if (m.text, m.statement) == line]
        found = found if len({(m.module, m.function) for m in found}) == 1 else []
    return min(
        found,
        key=lambda m: (
            not same_file(m),
            m.statement != wanted.statement,
            abs(m.nth - wanted.nth),
        ),
        default=None,
    )


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield what a node is made of and may change, with its field and index."""
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        many = isinstance(value, list)
        for index, child in enumerate(value if many else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, _SKIPPED):
                continue
            is_statement = isinstance(child, ast.stmt)
            if is_statement and _SKIPPED_STATEMENTS.match(ast.unparse(child)):
                continue
            yield child, field, index if many else None


def _changes(
    node: ast.AST, parent: ast.AST, field: str
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the kinds of changes of a node, with the node that takes its place."""
    match node:
        case ast.Compare(left, [op], right) if type(op) in _SWAPS:
            yield "compare", ast.Compare(left, [_SWAPS[type(op)]()], right)
        case ast.BinOp(left, op, right) if type(op) in _SWAPS:
            if not _is_text(left) and not _is_text(right):
                yield "arithmetic", ast.BinOp(left, _SWAPS[type(op)](), right)
        case ast.BoolOp(op, values):
            yield "boolean", ast.BoolOp(_SWAPS[type(op)](), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", operand
        case ast.UnaryOp(ast.USub() as op, ast.Constant(int(value) | float(value))):
            yield "number", ast.UnaryOp(op, ast.Constant(value + 1))
        case ast.UnaryOp(ast.USub(), operand):
            yield "minus", operand
        case ast.Constant(bool(value)):
            yield "truth", ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield "number", ast.Constant(value + 1)
        case ast.Call(ast.Name(name), args, keywords) if name in _CALLS:
            yield "call", ast.Call(ast.Name(_CALLS[name], ast.Load()), args, keywords)
        case ast.Call(ast.Attribute(value, name), args, keywords) if name in _CALLS:
            function = ast.Attribute(value, _CALLS[name], ast.Load())
            yield "call", ast.Call(function, args, keywords)
    if field == "test" and isinstance(parent, ast.If | ast.IfExp | ast.While):
        match node:  # the same as another change
            case ast.UnaryOp(ast.Not()):
                return
            case ast.Compare(_, [op]) if isinstance(op, _OPPOSITE):
                return
            case ast.expr():
                yield "if", ast.UnaryOp(ast.Not(), node)


def _is_negative(node: ast.AST) -> bool:
    """Return whether a node is a number with a minus."""
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float())):
            return True
    return False


def _is_text(node: ast.AST) -> bool:
    """Return whether + joins what a node is, and does not add it."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)


def _bare(name: str) -> str:
    """Return a name whose parts have no leading underscores."""
    return ".".join(part.lstrip("_") or part for part in name.split("."))
