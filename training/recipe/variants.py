"""Make one recipe of a file that describes many.

Such a file has the tables of a recipe, as a base, and in `choices` what sets its
variants apart:

    [choices.cub.data]
    images = "data/CUB_200_2011/manifest.csv"

    [choices.triplet.loss]
    name = "TripletLoss"

    [choices."cub/triplet".fit]
    steps = 2000

A variant is named by its choices, such as "cub/triplet". The base and every entry of
`choices` whose words are all in that name, in the order of the file, make its recipe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfdml.command_parser import command
from tfdml.messages import cut, nearest, shown

from .checks import RecipeError
from .published import check_metric

NOT_PRINTED = "-"
"""What stands in a row for a value that the paper does not print."""

MISSING = "missing"
"""The key of a choice that says why its variants cannot run."""

_KEYS = ("choices", "results", "paper")
_REPLACED_BY = {"loss": "name", "batches": "design"}
"""A table with this key takes the place of the one before: its keys depend on it."""


@dataclass(frozen=True)
class PrintedTable:
    """A table of a paper: its name, its columns, and its rows by variant.

    Args:
        name: Which table, and on which page.
        columns: The metric of each column, as in `training.recipe.published`.
        rows: The values in percent by variant, each by its metric; what the paper does
            not print is left out.
    """

    name: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, float]]


@dataclass(frozen=True)
class RecipeFile:
    """A file that describes many recipes.

    Args:
        name: What the file is called in messages.
        paper: The paper that the recipes are of; may be empty.
        base: The tables that every variant has.
        choices: What sets the variants apart, by words joined by "/".
        tables: What the paper printed. Its rows are the variants; without any, every
            combination of choices is one.
    """

    name: str
    paper: str
    base: dict[str, Any]
    choices: dict[str, dict[str, Any]]
    tables: Sequence[PrintedTable] = field(default=())

    @property
    def variants(self) -> tuple[str, ...]:
        """The name of each row, once."""
        return tuple(dict.fromkeys(name for t in self.tables for name in t.rows))

    def missing(self, variant: str) -> str:
        """Return why a variant cannot run; empty where it can."""
        reasons = (choice.get(MISSING, "") for choice in self._chosen(variant))
        return next(filter(None, reasons), "")

    def tables_of(self, variant: str) -> dict[str, Any]:
        """Return the tables of the recipe of a variant.

        Raises:
            RecipeError: There is no such variant, or it cannot run.
        """
        self._check(variant)
        if reason := self.missing(variant):
            raise RecipeError(
                f"{cut(self.name)}: {cut(variant)} cannot run: {cut(reason, 200)}"
            )
        made = dict(self.base)
        for choice in self._chosen(variant):
            for name, table in choice.items():
                if name != MISSING:
                    made[name] = _over(name, made.get(name), table)
        rows = {table.name: table.rows.get(variant) for table in self.tables}
        made["published"] = {
            "paper": self.paper,
            "variant": variant,
            "rows": {name: row for name, row in rows.items() if row},
        }
        return made

    def _chosen(self, variant: str) -> list[dict[str, Any]]:
        words = set(_words(variant))
        return [c for name, c in self.choices.items() if words.issuperset(_words(name))]

    def _check(self, variant: str) -> None:
        kind, words, known = "variant", [variant], set(self.variants)
        if not known:
            kind, words = "choice", _words(variant)
            known = {word for name in self.choices for word in _words(name)}
        for word in words:
            if word not in known:
                near = nearest(word, known)
                hint = f"Did you mean `{near}`?" if near else self._listed()
                raise RecipeError(
                    f"{cut(self.name)}: there is no {kind} {shown(word)}. {hint}"
                )

    def _listed(self) -> str:
        return f"`{command('training', f'recipes {cut(self.name)}')}` lists them."

    def none_chosen(self) -> RecipeError:
        """Return the error of a command that names no variant."""
        names = self.variants or ["/".join(self.choices)]
        count = len(names) if self.variants else "many"
        return RecipeError(
            f"{cut(self.name)} holds {count} recipes: `--variant` must name one, such "
            f"as {names[0]}. {self._listed()}"
        )


def recipe_file(tables: Mapping[str, Any], name: str) -> RecipeFile | None:
    """Read what a file says of its variants.

    Args:
        tables: The file, as `tomllib` reads it.
        name: What the file is called in messages.

    Returns:
        The recipes; None if the file is a single one.

    Raises:
        RecipeError: A choice or a row is not as it must be; the message names it.
    """
    if "choices" not in tables:
        return None
    choices = tables["choices"]
    if not isinstance(choices, dict) or not choices:
        raise RecipeError(f"{cut(name)}: `choices` must be tables, [choices.NAME].")
    for word, choice in choices.items():
        where = f"{cut(name)}: [choices.{cut(word)}]"
        if not isinstance(choice, dict):
            raise RecipeError(f"{where} must be a table. Received: {shown(choice)}.")
        for table, value in choice.items():
            if not isinstance(value, str if table == MISSING else dict):
                kind = "a text" if table == MISSING else "a table"
                raise RecipeError(
                    f"{where}: `{cut(table)}` must be {kind}. Received: {shown(value)}."
                )
    known = {word for key in choices for word in _words(key)}
    printed = tuple(
        _printed_table(table, known, f"{cut(name)}: [[results]] {number}")
        for number, table in enumerate(_list_of(tables, name), 1)
    )
    base = {key: table for key, table in tables.items() if key not in _KEYS}
    return RecipeFile(name, str(tables.get("paper", "")), base, choices, printed)


def _list_of(tables: Mapping[str, Any], name: str) -> list[Any]:
    results = tables.get("results", [])
    if not isinstance(results, list):
        raise RecipeError(f"{cut(name)}: `results` must be a list, [[results]].")
    return results


def _printed_table(table: Any, known: set[str], where: str) -> PrintedTable:
    keys = {"table": str, "columns": list, "rows": dict}
    for key, kind in keys.items():
        if not isinstance(table, dict) or not isinstance(table.get(key), kind):
            raise RecipeError(
                f"{where}: `table` must be a text, `columns` a list and `rows` a "
                f"table. Received: {shown(table)}."
            )
    columns = tuple(map(str, table["columns"]))
    for column in columns:
        try:
            check_metric(column)
        except RecipeError as error:
            raise RecipeError(f"{where}: {error}") from None
    rows = {}
    for variant, values in table["rows"].items():
        of = f"{where}: {shown(variant)}"
        if wrong := sorted(set(_words(variant)) - known):
            raise RecipeError(f"{of}: there is no choice {shown(wrong[0])}.")
        if not isinstance(values, list) or len(values) != len(columns):
            raise RecipeError(
                f"{of} must be a list of {len(columns)} values, one for each column. "
                f"Received: {shown(values)}."
            )
        for value in values:
            is_number = type(value) in (int, float) and 0 <= value <= 100
            if not is_number and value != NOT_PRINTED:
                raise RecipeError(
                    f"{of} must hold percentages, from 0 to 100, or "
                    f'"{NOT_PRINTED}". Received: {shown(value)}.'
                )
        rows[variant] = {
            column: float(value)
            for column, value in zip(columns, values, strict=True)
            if value != NOT_PRINTED
        }
    return PrintedTable(table["table"], columns, rows)


def _words(name: str) -> list[str]:
    return name.split("/")


def _over(name: str, before: Any, table: Any) -> Any:
    """Return a table with another one over it."""
    if not isinstance(before, dict) or _REPLACED_BY.get(name) in table:
        return table
    return before | table
