"""Read and check recipes: TOML files that say what a training run does."""

import dataclasses
import json
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.files import short_names
from tfdml.images import RandomChanges, RandomView, View
from tfdml.messages import cut, shortened, shown
from tfdml.text_files import read_text

from .checks import RecipeError, check_known
from .fit_table import Fit
from .losses import check_compares_lengths, checked_loss
from .tables import (
    Batches,
    Boundaries,
    Data,
    Embedder,
    Evaluation,
    Images,
    Loss,
    Proxies,
)

_SHIPPED = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True)
class Recipe:
    """A whole recipe; every table but `[data]` may be left out."""

    data: Data
    embedder: Embedder = field(default_factory=Embedder)
    loss: Loss = field(default_factory=Loss)
    proxies: Proxies = field(default_factory=Proxies)
    boundaries: Boundaries = field(default_factory=Boundaries)
    images: Images = field(default_factory=Images)
    batches: Batches = field(default_factory=Batches)
    augmentation: RandomChanges = field(default_factory=RandomChanges)
    fit: Fit = field(default_factory=Fit)
    evaluation: Evaluation = field(default_factory=Evaluation)

    def __post_init__(self) -> None:
        """Check what two tables say together."""
        is_manifest = self.data.images.lower().endswith(".csv")  # may have them
        if self.fit.patience and not self.data.validation_fraction and not is_manifest:
            raise RecipeError(
                "[fit]: `patience` must be 0 without validation classes to "
                f"watch. Received: {self.fit.patience} and validation_fraction = 0."
            )
        if self.batches.importance_weights and not self.loss.is_weighted:
            raise RecipeError(
                "[batches]: `importance_weights` goes with WeightedContrastiveLoss or "
                f"BalancedContrastiveLoss. Received: {self.loss.name}."
            )
        _ = self.view  # refuses what does not go together
        several = self.proxies.centers_per_class > 1
        if self.proxies != Proxies() and not self.loss.on_proxies:
            raise RecipeError(
                "[proxies] must be left out with a loss without proxies. "
                f"Received: the loss {self.loss.name}."
            )
        if self.boundaries != Boundaries() and not self.loss.on_boundaries:
            raise RecipeError(
                "[boundaries] must be left out with a loss without learned boundaries. "
                f"Received: the loss {self.loss.name}."
            )
        if several and self.loss.name != "SoftTripleLoss":
            raise RecipeError(
                "[proxies]: `centers_per_class` must be 1 except with SoftTripleLoss. "
                f"Received: {self.proxies.centers_per_class} with {self.loss.name}."
            )

    @property
    def view(self) -> View:
        """How an image becomes what the network is shown."""
        about = self.images
        try:
            view = View(self.embedder.image_size, about.resize, about.pad)
            RandomView(view, about.crop, about.min_scale)
        except ValueError as error:
            raise RecipeError(f"[images]: {error}") from None
        return view


@short_names()
def read_recipe(
    path: str | PathLike[str],
    *,
    images: str | None = None,
    settings: Sequence[str] = (),
) -> Recipe:
    """Read and check a recipe.

    Args:
        path: A TOML file with the tables `[data]`, `[embedder]`, `[loss]`,
            `[proxies]`, `[boundaries]`, `[images]`, `[batches]`, `[augmentation]`,
            `[fit]` and `[evaluation]`; or the name of a recipe that comes with the
            application, such as `demo`.
        images: Takes the place of `images` in `[data]`.
        settings: Values in place of the recipe's, as "TABLE.KEY=VALUE", such as
            "fit.learning_rate=1e-4". Values are TOML; what is none is a text, so that
            a shell needs no quotes. Of two of one key the later counts.

    Returns:
        The recipe.

    Raises:
        RecipeError: The file is missing or no TOML, a key is unknown, or a value
            cannot be. The message names the key and the rule.
    """
    try:
        tables = tomllib.loads(read_text(_recipe_file(path)))
    except FileNotFoundError:
        known = sorted(file.stem for file in _SHIPPED.glob("*.toml"))
        raise RecipeError(
            f"There is no recipe at {cut(path)}. Recipes that can be named without a "
            f"path: {', '.join(known)}; below them, such as papers/topk_cub_densenet."
        ) from None
    except tomllib.TOMLDecodeError as error:
        hint = " Write paths with / in place of \\." if "\\" in str(error) else ""
        raise RecipeError(
            f"{cut(path)} is not valid TOML: {shortened(error)}.{hint}"
        ) from None
    except ValueError as error:
        raise RecipeError(str(error)) from None
    if images is not None:
        settings = (f"data.images={json.dumps(images)}", *settings)
    return recipe_of(_with_settings(tables, settings), str(path))


def _recipe_file(path: str | PathLike[str]) -> Path:
    file = Path(path)
    if not file.suffix and not file.is_absolute() and not file.exists():
        shipped = (_SHIPPED / file).with_suffix(".toml")
        return shipped if shipped.is_file() else file
    return file


def recipe_of(tables: dict[str, Any], name: str = "recipe") -> Recipe:
    """Make and check a recipe from its tables, as `tomllib` reads them.

    Args:
        tables: Each table by its name.
        name: What the recipe is called in messages.

    Returns:
        The recipe.

    Raises:
        RecipeError: As `read_recipe`.
    """
    sections = {f.name: f for f in dataclasses.fields(Recipe)}
    values = {}
    for section, table in with_current_names(tables).items():
        check_known(section, sections, f"{cut(name)}: ", "table")
        if not isinstance(table, dict):
            raise RecipeError(
                f"{cut(name)}: `{section}` must be a table, written [{section}]."
            )
        where = f"{cut(name)}: [{section}]: "
        values[section] = _read_table(where, sections[section].type, dict(table))
    if "data" not in values:
        raise RecipeError(f"{cut(name)}: the table [data] with `images` is missing.")
    recipe = Recipe(**values)
    if not recipe.embedder.unit_length:
        check_compares_lengths(f"{cut(name)}: [embedder]: ", recipe.loss)
    return recipe


def with_current_names(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a recipe with what was renamed since it was written."""
    renamed = {OLD_TABLES.get(name, name): table for name, table in tables.items()}
    changes = renamed.get("augmentation")
    if isinstance(changes, dict):
        renamed["augmentation"] = {
            OLD_CHANGES.get(key, key): value for key, value in changes.items()
        }
    return renamed


def _with_settings(tables: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return tables with values that were given beside them."""
    changed = with_current_names(tables)
    for setting in settings:
        place, sign, text = setting.partition("=")
        section, dot, key = place.strip().partition(".")
        if not (sign and dot and section and key):
            raise RecipeError(
                "`--set` must be TABLE.KEY=VALUE, such as fit.learning_rate=1e-4. "
                f"Received: {shown(setting)}."
            )
        table = changed.get(section, {})
        if isinstance(table, dict):  # else the whole recipe is refused
            changed[section] = table | {key: _value_of(text.strip())}
    return changed


def _value_of(text: str) -> Any:
    """Read a value as TOML does, or as a text where it is no TOML."""
    try:
        values = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    # A line break would begin another key.
    return values["value"] if len(values) == 1 else text


OLD_TABLES = {"pictures": "images"}
OLD_CHANGES = {"greyscale": "grayscale"}


def _read_table(where: str, kind: Any, table: dict[str, Any]) -> Any:
    if kind is Loss:
        name = table.pop("name", Loss.name)
        return checked_loss(where, name, table)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    values = {}
    for key, value in table.items():
        check_known(key, fields, where, "key")
        values[key] = _convert(where, key, value, fields[key].type)
    for f in fields.values():
        required = f.default is dataclasses.MISSING
        if required and f.name not in values:
            raise RecipeError(f"{where}`{f.name}` must be given.")
    try:
        return kind(**values)
    except ValueError as error:
        raise RecipeError(f"{where}{error}") from None


def _convert(where: str, key: str, value: Any, kind: Any) -> Any:
    """Check the type of a TOML value; whole numbers do for floats, lists for tuples."""
    origin = typing.get_origin(kind)
    if origin is tuple and isinstance(value, list):
        item_kind = typing.get_args(kind)[0]
        return tuple(_convert(where, key, item, item_kind) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    expected = origin or kind
    if type(value) is not expected:
        names = {bool: "true or false", int: "a whole number", float: "a number"}
        names |= {str: "a text in quotes", tuple: "a list"}
        raise RecipeError(
            f"{where}`{key}` must be {names[expected]}. Received: {shown(value)}."
        )
    return value
