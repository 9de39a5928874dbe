"""Check the values of a recipe."""

import math
from typing import Any

from tfdml.messages import shown


class RecipeError(ValueError):
    """A recipe has an unknown key or an invalid value."""


def check_range(table: Any, name: str, least: float, most: float | None = None) -> None:
    """Raise if a value of a table is NaN or out of range.

    Raises:
        RecipeError: The message names key, rule and value.
    """
    value = getattr(table, name)
    # A NaN is in no range.
    if not (least <= value < math.inf and (most is None or value <= most)):
        rule = f"at least {least}" if most is None else f"from {least} to {most}"
        raise RecipeError(f"`{name}` must be {rule}. Received: {value}.")


def check_word(table: Any, name: str, choices: tuple[str, ...]) -> None:
    """Raise if a value of a table is not one of the choices.

    Raises:
        RecipeError: The message names key, choices and value.
    """
    value = getattr(table, name)
    if value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise RecipeError(
            f"`{name}` must be {', '.join(others)} or {last}. Received: {shown(value)}."
        )
