"""Find and read the files of recipes."""

import tomllib
from os import PathLike
from pathlib import Path
from typing import Any

from tfdml.messages import cut, shortened
from tfdml.text_files import read_text

from .checks import RecipeError

SHIPPED = Path(__file__).parents[1] / "recipes"
"""The recipes that come with the application."""


def read_tables(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the tables of a recipe, or of a file that describes many, unchecked.

    Args:
        path: A TOML file, or the name of a recipe that comes with the application.

    Raises:
        RecipeError: The file is missing or no TOML.
    """
    try:
        return tomllib.loads(read_text(recipe_path(path)))
    except FileNotFoundError:
        known = sorted(file.stem for file in SHIPPED.glob("*.toml"))
        raise RecipeError(
            f"There is no recipe at {cut(path)}. Recipes that can be named without a "
            f"path: {', '.join(known)}; below them, such as papers/topk_precision."
        ) from None
    except tomllib.TOMLDecodeError as error:
        hint = " Write paths with / in place of \\." if "\\" in str(error) else ""
        raise RecipeError(
            f"{cut(path)} is not valid TOML: {shortened(error)}.{hint}"
        ) from None
    except ValueError as error:
        raise RecipeError(str(error)) from None


def shipped_recipes() -> list[str]:
    """Return the name of each recipe that comes with the application."""
    files = (file.relative_to(SHIPPED) for file in SHIPPED.rglob("*.toml"))
    return sorted(file.with_suffix("").as_posix() for file in files)


def recipe_path(path: str | PathLike[str]) -> Path:
    """Return the file of a recipe, which may be named; perhaps it is not there."""
    file = Path(path)
    if not file.suffix and not file.is_absolute() and not file.exists():
        shipped = (SHIPPED / file).with_suffix(".toml")
        return shipped if shipped.is_file() else file
    return file
