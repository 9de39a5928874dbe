"""Read and check recipes: TOML files that say what a training run does."""

import dataclasses
import json
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from tfdml.files import short_names
from tfdml.images import RandomChanges, RandomView, View
from tfdml.messages import cut, shown

from .checks import RecipeError, check_known
from .files import read_tables
from .fit_table import Fit
from .former_recipes import former_recipe
from .losses import check_compares_lengths, check_compatible, checked_loss
from .other_models import Compatible, Teacher
from .published import Published
from .tables import (
    Batches,
    Boundaries,
    Data,
    Embedder,
    Evaluation,
    Images,
    Loss,
    Moments,
    Proxies,
)
from .variants import recipe_file


@dataclass(frozen=True)
class Recipe:
    """A whole recipe; every table but `[data]` may be left out."""

    data: Data
    embedder: Embedder = field(default_factory=Embedder)
    loss: Loss = field(default_factory=Loss)
    proxies: Proxies = field(default_factory=Proxies)
    boundaries: Boundaries = field(default_factory=Boundaries)
    moments: Moments = field(default_factory=Moments)
    compatible: Compatible = field(default_factory=Compatible)
    teacher: Teacher = field(default_factory=Teacher)
    images: Images = field(default_factory=Images)
    batches: Batches = field(default_factory=Batches)
    augmentation: RandomChanges = field(default_factory=RandomChanges)
    fit: Fit = field(default_factory=Fit)
    evaluation: Evaluation = field(default_factory=Evaluation)
    published: Published = field(default_factory=Published)

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
        dimensions = self.loss.dimensions
        if dimensions and dimensions[-1] != self.embedder.embedding_dimension:
            raise RecipeError(
                "[loss]: the last of `dimensions` must be the `embedding_dimension` of "
                f"[embedder], {self.embedder.embedding_dimension}. "
                f"Received: {shown(list(dimensions))}."
            )
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
        if (
            self.loss.name == "HierarchicalTripletLoss"
            and self.batches.design != "hierarchy"
        ):
            raise RecipeError(
                '[batches]: `design` must be "hierarchy" with HierarchicalTripletLoss, '
                f"whose margins it makes. Received: {shown(self.batches.design)}."
            )
        network = self.embedder.backbone, self.embedder.pooling, self.embedder.tuning
        if self.loss.name == "ABELoss" and network != ("googlenet", "average", "whole"):
            raise RecipeError(
                '[embedder]: `backbone` must be "googlenet", `pooling` "average" and '
                f'`tuning` "whole" with ABELoss. Received: {shown(list(network))}.'
            )
        on_layer = self.loss.on_proxies or self.loss.on_boundaries or self.loss.on_scale
        if self.moments.order > 1 and on_layer:
            raise RecipeError(
                "[moments]: `order` must be 1 with a loss on proxies, learned "
                "boundaries or a learned scale. "
                f"Received: {self.moments.order} with {self.loss.name}."
            )
        is_continuous = self.batches.design == "neighbors"
        if self.evaluation.rerank and (is_continuous or not self.embedder.unit_length):
            raise RecipeError(
                "[evaluation]: `rerank` must be left out with continuous labels or "
                "`unit_length` = false: it is for classes, compared by cosine. "
                f"Received: {shown(list(self.evaluation.rerank))}."
            )
        for name in ("compatible", "teacher"):
            if getattr(self, name).run and self.moments.order > 1:
                raise RecipeError(
                    f"[{name}] must be left out with moments. "
                    f"Received: `order` = {self.moments.order} in [moments]."
                )
        if self.moments.order > 1 and self.embedder.pooling == "token":
            raise RecipeError(
                "[moments]: `order` must be 1 with pooling = 'token', which has no "
                f"feature map. Received: {self.moments.order}."
            )
        if self.embedder.tuning == "frozen":
            for name in ("backbone_rate", "layer_decay", "head_only_steps"):
                if getattr(self.fit, name) != getattr(Fit, name):
                    raise RecipeError(
                        f"[fit]: `{name}` must be left out with tuning = 'frozen', "
                        "where the backbone does not learn. "
                        f"Received: {getattr(self.fit, name)}."
                    )
        if several and self.loss.name not in ("SoftTripleLoss", "SubCenterArcFaceLoss"):
            raise RecipeError(
                "[proxies]: `centers_per_class` must be 1 except with SoftTripleLoss "
                "and SubCenterArcFaceLoss. "
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
    variant: str | None = None,
    images: str | None = None,
    settings: Sequence[str] = (),
) -> Recipe:
    """Read and check a recipe.

    Args:
        path: A TOML file with the tables `[data]`, `[embedder]`, `[loss]`,
            `[proxies]`, `[boundaries]`, `[moments]`, `[compatible]`, `[teacher]`,
            `[images]`, `[batches]`, `[augmentation]`, `[fit]`, `[evaluation]` and
            `[published]`; or the name of a recipe that comes with the application, such
            as `demo`.
        variant: Which recipe of a file that describes many, such as
            "cub/densenet201/topk".
        images: Takes the place of `images` in `[data]`.
        settings: Values in place of the recipe's, as "TABLE.KEY=VALUE", such as
            "fit.learning_rate=1e-4". Values are TOML; what is none is a text, so that
            a shell needs no quotes. Of two of one key the later counts.

    Returns:
        The recipe.

    Raises:
        RecipeError: The file is missing or no TOML, a key or the variant is unknown, or
            a value cannot be. The message names the key and the rule.
    """
    former = former_recipe(path)
    if former is not None and variant is None:
        path, variant = former.path, former.variant
        settings = (*former.settings, *settings)
    tables = read_tables(path)
    described = recipe_file(tables, str(path))
    if described is not None:
        if variant is None:
            raise described.none_chosen()
        tables = described.tables_of(variant)
    elif variant is not None:
        raise RecipeError(
            f"`--variant` must be left out: {cut(path)} holds one recipe. "
            f"Received: {shown(variant)}."
        )
    if images is not None:
        settings = (f"data.images={json.dumps(images)}", *settings)
    return recipe_of(_with_settings(tables, settings), str(path))


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
    if recipe.compatible.run:
        check_compatible(f"{cut(name)}: [compatible]: ", recipe.loss)
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
        if is_required(f) and f.name not in values:
            raise RecipeError(f"{where}`{f.name}` must be given.")
    try:
        return kind(**values)
    except ValueError as error:
        raise RecipeError(f"{where}{error}") from None


def is_required(field: "dataclasses.Field[Any]") -> bool:
    """Return whether a key of a table must be given."""
    return (
        field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )


def _convert(where: str, key: str, value: Any, kind: Any) -> Any:
    """Check the type of a TOML value; whole numbers do for floats, lists for tuples."""
    origin = typing.get_origin(kind)
    if origin is tuple and isinstance(value, list):
        item_kind = typing.get_args(kind)[0]
        return tuple(_convert(where, key, item, item_kind) for item in value)
    if origin is dict and isinstance(value, dict):
        item_kind = typing.get_args(kind)[1]
        return {
            name: _convert(where, f"{key}.{name}", item, item_kind)
            for name, item in value.items()
        }
    if kind is float and type(value) is int:
        return float(value)
    expected = origin or kind
    if type(value) is not expected:
        names = {bool: "true or false", int: "a whole number", float: "a number"}
        names |= {str: "a text in quotes", tuple: "a list", dict: "a table"}
        raise RecipeError(
            f"{where}`{key}` must be {names[expected]}. Received: {shown(value)}."
        )
    return value
