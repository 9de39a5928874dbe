"""Recipes: what a training run does, as a typed and checked TOML file."""

import dataclasses
import difflib
import inspect
import math
import tomllib
import typing
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

__all__ = [
    "Augmentation",
    "Batches",
    "Data",
    "Embedder",
    "Fit",
    "Loss",
    "Recipe",
    "RecipeError",
    "read_recipe",
]


class RecipeError(ValueError):
    """A recipe file has an unknown key or a value that cannot be."""


@dataclass(frozen=True)
class Data:
    """`[data]`: where the images are and how their classes are split.

    Classes are ordered by the SHA-256 of "split_seed/class". The first `test_fraction`
    of them are for testing, the next `validation_fraction` for validation, the rest for
    training; no class is in two parts. A fraction of 0 leaves its part out.
    """

    images: str
    test_fraction: float = 0.5
    validation_fraction: float = 0.05
    split_seed: int = 0
    skip_unreadable: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.images:
            raise RecipeError("`images` must name a folder. Received: ''.")
        _check_range(self, "test_fraction", 0, 1)
        _check_range(self, "validation_fraction", 0, 1)
        if self.test_fraction + self.validation_fraction >= 1:
            raise RecipeError(
                "`test_fraction` + `validation_fraction` must be below 1: the rest is "
                f"for training. Received: {self.test_fraction} + "
                f"{self.validation_fraction}."
            )


@dataclass(frozen=True)
class Embedder:
    """`[embedder]`: the arguments of `tfdml.embedder.build_embedder`."""

    image_size: int = 64
    embedding_dimension: int = 128
    backbone: str = "residual"
    weights: str = ""
    pooling: str = "average"
    widths: tuple[int, ...] = (32, 64, 128, 256)
    blocks: int = 1
    stem_stride: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Check what can be checked without building the network."""
        _check_range(self, "image_size", 8)
        _check_range(self, "embedding_dimension", 1)
        _check_range(self, "dropout", 0, 1)


@dataclass(frozen=True)
class Loss:
    """`[loss]`: a loss of `tfdml.losses` by its class name, and its arguments."""

    name: str = "TopKPrecisionLoss"
    arguments: dict[str, Any] = field(default_factory=dict)
    on_proxies: bool = False


@dataclass(frozen=True)
class Proxies:
    """`[proxies]`: the layer `tfdml.proxies.Proxies`, with a proxy loss alone.

    `center_penalty` is the tau of SoftTriple.
    """

    centers_per_class: int = 1
    learning_rate_multiplier: float = 1.0
    center_penalty: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        _check_range(self, "centers_per_class", 1)
        _check_range(self, "center_penalty", 0)
        if not 0 < self.learning_rate_multiplier < math.inf:
            raise RecipeError(
                "`learning_rate_multiplier` must be above 0 and finite. "
                f"Received: {self.learning_rate_multiplier}."
            )


@dataclass(frozen=True)
class Batches:
    """`[batches]`: the (m, n)-group design, m images of each of n classes.

    Both are at least 2: each image is compared with others of its class and of other
    classes. With fewer than n training classes a batch holds all of them.
    """

    images_per_class: int = 4
    classes_per_batch: int = 16

    def __post_init__(self) -> None:
        """Check the values."""
        _check_range(self, "images_per_class", 2)
        _check_range(self, "classes_per_batch", 2)


@dataclass(frozen=True)
class Augmentation:
    """`[augmentation]`: random changes of the training pictures; 0 turns one off.

    `zoom` (below 1) and `shift` are shares of the side, where height and width vary
    apart, `rotation` is in degrees, `brightness`, `contrast` and `hue` are the factors
    of Keras' layers of those names, `saturation` is the largest share of colour that is
    taken away, and `greyscale` is a probability.
    """

    zoom: float = 0.0
    shift: float = 0.0
    rotation: float = 0.0
    flip: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    greyscale: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        colors = ("brightness", "contrast", "saturation", "hue", "greyscale")
        for name in ("zoom", "shift", *colors):
            _check_range(self, name, 0, 1)
        if self.zoom == 1:
            raise RecipeError("`zoom` must be below 1: 1 leaves nothing to see.")
        _check_range(self, "rotation", 0, 180)


@dataclass(frozen=True)
class Fit:
    """`[fit]`: an optimiser with a linear warm-up, and cosine decay to 0 or none.

    `steps` is a multiple of `steps_per_epoch`, or less than it: then there is one
    epoch. `optimizer` is "adamw", "adam", "rmsprop" or "sgd" (momentum 0.9), `schedule`
    "cosine" or "constant". Gradients longer than `clip_norm`, all together, or larger
    than `clip_value` are cut down; 0 cuts nothing. Over `gradient_accumulation` batches
    gradients are averaged before a step. The backbone, all that stands before the
    pooling, learns with `backbone_rate` times the learning rate, and without weight
    decay if that is not 1; `freeze_batch_norm` leaves its batch normalisations as they
    are. After `patience` epochs that are no better on the validation classes the run
    ends; 0 never ends it.
    """

    steps: int = 1000
    steps_per_epoch: int = 100
    learning_rate: float = 1e-3
    warmup_steps: int = 0
    weight_decay: float = 1e-4
    seed: int = 0
    optimizer: str = "adamw"
    schedule: str = "cosine"
    clip_norm: float = 0.0
    clip_value: float = 0.0
    gradient_accumulation: int = 1
    backbone_rate: float = 1.0
    freeze_batch_norm: bool = False
    precision: str = "float32"
    jit_compile: bool = True
    patience: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        _check_range(self, "steps", 1)
        _check_range(self, "steps_per_epoch", 1)
        if self.steps % self.epoch_steps:
            raise RecipeError(
                "`steps` must be a multiple of `steps_per_epoch`, "
                f"{self.steps_per_epoch}. Received: {self.steps}."
            )
        _check_range(self, "warmup_steps", 0, self.steps - 1)
        _check_range(self, "weight_decay", 0)
        _check_range(self, "seed", 0, 2**31 - 1)
        _check_range(self, "patience", 0)
        _check_range(self, "clip_norm", 0)
        _check_range(self, "clip_value", 0)
        _check_range(self, "gradient_accumulation", 1, self.steps)
        _check_range(self, "backbone_rate", 0)
        _check_word(self, "optimizer", ("adamw", "adam", "rmsprop", "sgd"))
        _check_word(self, "schedule", ("cosine", "constant"))
        _check_word(self, "precision", ("float32", "mixed_float16", "mixed_bfloat16"))
        if not 0 < self.learning_rate < math.inf:
            raise RecipeError(
                "`learning_rate` must be above 0 and finite. "
                f"Received: {self.learning_rate}."
            )

    @property
    def epoch_steps(self) -> int:
        """Number of steps in each epoch."""
        return min(self.steps, self.steps_per_epoch)

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self.steps // self.epoch_steps


@dataclass(frozen=True)
class Recipe:
    """A whole recipe; every table but `[data]` may be left out."""

    data: Data
    embedder: Embedder = field(default_factory=Embedder)
    loss: Loss = field(default_factory=Loss)
    proxies: Proxies = field(default_factory=Proxies)
    batches: Batches = field(default_factory=Batches)
    augmentation: Augmentation = field(default_factory=Augmentation)
    fit: Fit = field(default_factory=Fit)

    def __post_init__(self) -> None:
        """Check what two tables say together."""
        if self.fit.patience and not self.data.validation_fraction:
            raise RecipeError(
                "[fit]: `patience` must be 0 without validation classes, on which it "
                f"waits. Received: {self.fit.patience} and validation_fraction = 0."
            )
        several = self.proxies.centers_per_class > 1
        if self.proxies != Proxies() and not self.loss.on_proxies:
            raise RecipeError(
                "[proxies] goes with a loss on proxies alone. Received: the loss "
                f"{self.loss.name}."
            )
        if several and self.loss.name != "SoftTripleLoss":
            raise RecipeError(
                "[proxies]: `centers_per_class` must be 1 except with SoftTripleLoss. "
                f"Received: {self.proxies.centers_per_class} with {self.loss.name}."
            )


def read_recipe(path: str | PathLike[str], *, images: str | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: A TOML file with the tables `[data]`, `[embedder]`, `[loss]`,
            `[proxies]`, `[batches]`, `[augmentation]` and `[fit]`.
        images: Takes the place of `images` in `[data]`.

    Returns:
        The recipe.

    Raises:
        RecipeError: The file is missing or no TOML, a key is unknown, or a value
            cannot be. The message names the key and the rule.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"There is no recipe at {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not valid TOML: {error}.") from None
    if images is not None:
        tables.setdefault("data", {})["images"] = images
    sections = {f.name: f for f in dataclasses.fields(Recipe)}
    values = {}
    for name, table in tables.items():
        _check_known(name, sections, f"{path}: ", "table")
        if not isinstance(table, dict):
            raise RecipeError(f"{path}: `{name}` must be a table, written [{name}].")
        values[name] = _read_table(f"{path}: [{name}]: ", sections[name].type, table)
    if "data" not in values:
        raise RecipeError(f"{path}: the table [data] with `images` must be there.")
    return Recipe(**values)


def _read_table(where: str, kind: Any, table: dict[str, Any]) -> Any:
    if kind is Loss:
        name = table.pop("name", Loss.name)
        return _checked_loss(where, name, table)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    values = {}
    for key, value in table.items():
        _check_known(key, fields, where, "key")
        values[key] = _convert(where, key, value, fields[key].type)
    for f in fields.values():
        required = f.default is dataclasses.MISSING
        if required and f.name not in values:
            raise RecipeError(f"{where}`{f.name}` must be given.")
    try:
        return kind(**values)
    except RecipeError as error:
        raise RecipeError(f"{where}{error}") from None


def _checked_loss(where: str, name: Any, arguments: dict[str, Any]) -> Loss:
    # Only here the losses, and with them Keras, are imported.
    import tfdml.losses
    from tfdml.losses import MetricLoss, PairLoss, ProxyLoss

    known = [
        name
        for name, loss in vars(tfdml.losses).items()
        if inspect.isclass(loss)
        and loss not in (MetricLoss, PairLoss, ProxyLoss)
        # These need a layer, label counts or labels that a recipe cannot name.
        and not issubclass(
            loss,
            tfdml.losses.LogRatioLoss
            | tfdml.losses.LearnedMarginLoss
            | tfdml.losses.WeightedContrastiveLoss
            | tfdml.losses.PairWeightedLoss,
        )
    ]
    _check_known(name, known, where, "loss")
    loss_class = getattr(tfdml.losses, name)
    parameters = inspect.signature(loss_class).parameters
    for key in arguments:
        _check_known(key, parameters, where, "key")
    try:
        loss_class(**arguments)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{where}{error}") from None
    return Loss(name, arguments, issubclass(loss_class, ProxyLoss))


def _check_known(
    name: Any, known: typing.Collection[str], where: str, kind: str
) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f" Did you mean `{near[0]}`?" if near else f" Known: {', '.join(known)}."
    raise RecipeError(f"{where}there is no {kind} `{name}`.{hint}")


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
            f"{where}`{key}` must be {names[expected]}. Received: {value!r}."
        )
    return value


def _check_range(
    table: Any, name: str, least: float, most: float | None = None
) -> None:
    value = getattr(table, name)
    # A NaN is in no range.
    if not (least <= value < math.inf and (most is None or value <= most)):
        rule = f"at least {least}" if most is None else f"from {least} to {most}"
        raise RecipeError(f"`{name}` must be {rule}. Received: {value}.")


def _check_word(table: Any, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(table, name)
    if value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise RecipeError(
            f"`{name}` must be {', '.join(others)} or {last}. Received: {value!r}."
        )
