"""Open a finished run: its recipe, its embedder, its images."""

import dataclasses
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdml.command_parser import command
from tfdml.images import View
from tfdml.messages import shortened, shown
from tfdml.models import load_embedder

from ..data.images import Images, find_readable, open_images
from ..data.source import Source, read_source
from ..data.split import Split
from ..json_files import read_json
from ..recipe.recipe import Recipe, with_current_names
from .build_batches import label_distance_of


@dataclass(frozen=True)
class FinishedRun:
    """What `tfdml fit` left in a folder.

    Args:
        folder: The run folder.
        recipe: What it trained by.
    """

    folder: Path
    recipe: Recipe

    def embedder(self) -> keras.Model:
        """Load the embedder that the run kept."""
        return load_embedder(self.folder / "embedder.keras")

    def split(
        self,
        split: str,
        images: str | PathLike[str] | None = None,
        view: View | None = None,
        *,
        skip_unreadable: bool = False,
    ) -> tuple[Split, list[str]]:
        """Find the images of a split again, as the network saw them.

        Files that cannot be read are left out where the recipe or the argument says
        so, and named on the console.

        Args:
            split: `"train"`, `"validation"` or `"test"`.
            images: Folder or manifest, where the images are not those of the recipe or
                no longer there.
            view: How another model sees them, in place of the view of the run.
            skip_unreadable: Whether files that cannot be read are left out.

        Returns:
            The images, perhaps none, and the name of each.

        Raises:
            FileNotFoundError: The images are gone.
            ValueError: They cannot be used, or are split in another way than those of
                the run, so that what it trained on would be measured.
        """
        settings = self.recipe.data
        if images is not None:
            if not Path(images).exists():
                raise FileNotFoundError(f"There are no images at {shown(str(images))}.")
            is_same = Path(images).resolve() == Path(settings.images).resolve()
            root = settings.root if is_same else ""
            settings = dataclasses.replace(settings, images=str(images), root=root)
        elif not Path(settings.images).exists():
            raise FileNotFoundError(
                f"The images of the run are no longer in {shown(settings.images)}. "
                "Name the folder or manifest where they are now as `images`."
            )
        if skip_unreadable:
            settings = dataclasses.replace(settings, skip_unreadable=True)
        source = read_source(settings)
        for note in source.notes:
            print(note)
        data = source.data.of_split(split)
        self._check_not_trained(split, source, settings.images)
        viewed = open_images(self.recipe, data) if view is None else Images(data, view)
        positions = np.arange(len(data))
        if settings.skip_unreadable:
            positions, _ = find_readable(viewed, skip_unreadable=True)
        selected = data.select(positions)
        distance = label_distance_of(self.recipe)
        return Split(selected, viewed, positions, distance), source.names(selected)

    def _check_not_trained(self, split: str, source: Source, images: str) -> None:
        """Refuse classes, or images with continuous labels, that the run trained on."""
        if split == "train":
            return
        data = source.data.of_split(split)
        trained = set(read_json(self.folder / "splits.json")["train"])
        found = source.names(data) if data.is_continuous else data.class_names
        shared = trained.intersection(found)
        if shared:
            raise ValueError(
                f"The {split} split of {shown(images)} must not hold what the run "
                f"trained on. Received: {shown(min(shared))} ({len(shared)} of "
                f"{len(found)}). Give the images of the run, or a manifest that states "
                "the splits."
            )


_FILES = ("metrics.json", "recipe.json", "splits.json", "embedder.keras")


def is_finished_run(folder: Path) -> bool:
    """Return whether a folder holds all that a finished run leaves."""
    return all((folder / name).is_file() for name in _FILES)


def read_finished_run(run: str | PathLike[str]) -> FinishedRun:
    """Read what a finished run was, without loading its embedder.

    Args:
        run: The run folder.

    Returns:
        The run.

    Raises:
        FileNotFoundError: The folder holds no finished run.
        ValueError: Its `recipe.json` is damaged or of another version.
    """
    folder = Path(run)
    for name in _FILES:
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} holds no finished run (no {name}). "
                f"`{command('training', 'fit')}` writes one."
            )
    return FinishedRun(folder, _recipe_of(folder))


def _recipe_of(folder: Path) -> Recipe:
    tables = read_json(folder / "recipe.json")
    try:
        tables = with_current_names(tables)
        kinds = {field.name: field.type for field in dataclasses.fields(Recipe)}
        return Recipe(**{name: _table(kinds[name], tables[name]) for name in tables})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{folder / 'recipe.json'} is not a recipe that this version reads "
            f"({type(error).__name__}: {shortened(error)})."
        ) from error


def _table(kind: Any, values: dict[str, Any]) -> Any:
    """Make a table of a recipe from JSON, which has lists for tuples."""
    return kind(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    )
