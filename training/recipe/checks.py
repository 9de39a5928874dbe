"""What the tables of a recipe check."""

import math
from typing import Any


class RecipeError(ValueError):
    """A recipe file has an unknown key or a value that cannot be."""


def check_range(table: Any, name: str, least: float, most: float | None = None) -> None:
    """Refuse a value of a table that is NaN or outside of a range.

    Raises:
        RecipeError: It is; the message names key, rule and value.
    """
    value = getattr(table, name)
    # A NaN is in no range.
    if not (least <= value < math.inf and (most is None or value <= most)):
        rule = f"at least {least}" if most is None else f"from {least} to {most}"
        raise RecipeError(f"`{name}` must be {rule}. Received: {value}.")


def check_word(table: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a value of a table that is none of some words.

    Raises:
        RecipeError: It is none; the message names key, words and value.
    """
    value = getattr(table, name)
    if value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise RecipeError(
            f"`{name}` must be {', '.join(others)} or {last}. Received: {value!r}."
        )
