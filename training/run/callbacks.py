"""Find the callbacks that a recipe names, and tell them about their run."""

import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from tfdml.messages import nearest, shortened, shown

from ..json_files import read_json, write_json
from ..recipe.fit_table import EVENT_FILES
from ..recipe.recipe import Recipe, RecipeError

GROUP = "tfdml.callbacks"
"""The group of entry points by which a package offers callbacks to recipes."""

_OWN = {
    "mlflow": ".mlflow_tracker:MLflowTracker",
    "wandb": ".wandb_tracker:WandbTracker",
}
_NOTES = "trackers.json"

Factory = Callable[..., Any]


@dataclass(frozen=True)
class TrainingRun:
    """What a callback may know about its run.

    Attributes:
        name: Name of the run folder.
        folder: Where the run is written until it is finished; it keeps what callbacks
            note, also when the run is interrupted.
        recipe: The tables of the recipe.
        steps_per_epoch: Number of steps in an epoch.
    """

    name: str
    folder: Path
    recipe: dict[str, Any]
    steps_per_epoch: int

    def noted(self, key: str) -> dict[str, Any]:
        """Return what a callback noted when the run began, {} if it did not."""
        path = self.folder / _NOTES
        return dict(read_json(path).get(key, {})) if path.exists() else {}

    def note(self, key: str, values: Mapping[str, Any]) -> None:
        """Note values, such as the id of a tracker's run, for when the run goes on."""
        path = self.folder / _NOTES
        notes = read_json(path) if path.exists() else {}
        write_json(path, {**notes, key: dict(values)})


class RunCallbacks:
    """The callbacks of a recipe, which are found before a run and made when it begins.

    Args:
        recipe: Its `callbacks` name them.

    Raises:
        RecipeError: There is no such callback, or its package is not installed.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        names = [name for name in recipe.fit.callbacks if name != EVENT_FILES]
        self._factories = {name: _found(name) for name in dict.fromkeys(names)}
        self._made: list[keras.callbacks.Callback] = []

    def make(self, folder: Path, name: str) -> Sequence[keras.callbacks.Callback]:
        """Make the callbacks.

        Args:
            folder: Folder of the unfinished run.
            name: Name of the run.

        Raises:
            RecipeError: One is no callback of Keras.
            RuntimeError: A tracker cannot be reached.
        """
        tables = json.loads(json.dumps(dataclasses.asdict(self._recipe)))
        run = TrainingRun(name, folder, tables, self._recipe.fit.epoch_steps)
        for called, factory in self._factories.items():
            takes_run = "run" in inspect.signature(factory).parameters
            made = factory(run=run) if takes_run else factory()
            if not isinstance(made, keras.callbacks.Callback):
                raise RecipeError(
                    f"[fit]: `callbacks`: {shown(called)} must make a "
                    f"keras.callbacks.Callback. Received: {shown(made)}."
                )
            self._made.append(made)
        return self._made

    def end(self, results: dict[str, Any] | None) -> None:
        """Call `on_run_end` of the callbacks; an error of theirs is a warning.

        Args:
            results: What the run has measured; None if it was stopped.
        """
        made, self._made = self._made, []
        for callback in made:
            end = getattr(callback, "on_run_end", None)
            try:
                if end is not None:
                    end(results)
            except Exception as error:
                warnings.warn(
                    f"{type(callback).__name__} failed at the end of the run "
                    f"({type(error).__name__}: {shortened(error)}). The run itself is "
                    "not affected.",
                    stacklevel=2,
                )


def tagged(values: Mapping[str, Any]) -> dict[str, float]:
    """Name the values of an epoch as trackers show them: "train/..." and so on."""
    found = {}
    for name, value in values.items():
        short = name.removeprefix("val_")
        kind = "train" if short == name else "validation"
        found[f"{kind}/{short}"] = float(value)
    return found


def test_values(results: Mapping[str, Any]) -> dict[str, float]:
    """Name what a run has measured on its test images, as trackers show it."""
    measured = results.get("test_after_training") or {}
    return {f"test/{name}": float(value) for name, value in measured.items()}


def _found(name: str) -> Factory:
    if ":" in name:
        return _imported(name, name)
    if name in _OWN:
        try:
            return _attribute(_OWN[name], __package__)
        except ImportError as error:
            raise RecipeError(
                f"[fit]: `callbacks`: {shown(name)} needs the package {name}: pip "
                f'install "tfdml[{name}]" ({shortened(error)}).'
            ) from error
    offered = {e.name: e for e in importlib.metadata.entry_points(group=GROUP)}
    if name in offered:
        return _imported(name, offered[name].value)
    known = sorted({EVENT_FILES, *_OWN, *offered})
    near = nearest(name, known)
    hint = f"Did you mean {shown(near)}?" if near else f"Known: {shown(known)}."
    raise RecipeError(
        f"[fit]: `callbacks` must be names of installed callbacks or MODULE:NAME. "
        f"Received: {shown(name)}. {hint}"
    )


def _imported(name: str, place: str) -> Factory:
    try:
        return _attribute(place)
    except (ImportError, AttributeError) as error:
        raise RecipeError(
            f"[fit]: `callbacks`: {shown(name)} cannot be imported "
            f"({shortened(error)})."
        ) from error


def _attribute(place: str, package: str | None = None) -> Factory:
    module, _, name = place.partition(":")
    here = os.getcwd()
    # A callback of one's own stands beside the recipe more often than in a package.
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    found: Any = importlib.import_module(module.strip(), package)
    for part in name.strip().split("."):
        found = getattr(found, part)
    if not callable(found):
        raise AttributeError(f"{place} is not callable")
    return found
