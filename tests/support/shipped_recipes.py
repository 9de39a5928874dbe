"""The recipes that come with the application: files, and the variants in them."""

import functools
from pathlib import Path

from training.recipe.files import read_tables
from training.recipe.recipe import Recipe, recipe_of
from training.recipe.variants import RecipeFile, recipe_file

FOLDER = Path(__file__).parents[2] / "training" / "recipes"
FILES = sorted(FOLDER.rglob("*.toml"))


@functools.cache
def described(path: Path) -> RecipeFile | None:
    """Return what a file says of its variants; None if it is a single recipe."""
    return recipe_file(read_tables(path), path.name)


@functools.cache
def recipes_of(path: Path) -> dict[str, Recipe]:
    """Return each recipe of a file that can run, by its variant, or by ""."""
    file = described(path)
    if file is None:
        return {"": recipe_of(read_tables(path), path.name)}
    return {
        variant: recipe_of(file.tables_of(variant), f"{path.name} {variant}")
        for variant in file.variants
        if not file.missing(variant)
    }
