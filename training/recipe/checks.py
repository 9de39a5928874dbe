"""Declare and check the values of a recipe.

The limits of a key stand in the metadata of its field, under the names of JSON Schema:
`check_fields` and the schema of recipes read them from there.
"""

import dataclasses
import math
from collections.abc import Collection
from typing import Any

from tfdml.messages import cut, nearest, shown


class RecipeError(ValueError):
    """A recipe has an unknown key or an invalid value."""


def limited(
    default: float,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Declare a number with its limits: `least` and `most` are allowed themselves.

    Args:
        default: The value of a recipe without the key.
        least: The minimum.
        most: The maximum.
        above: The exclusive minimum.
        below: The exclusive maximum.
    """
    limits = {
        "minimum": least,
        "maximum": most,
        "exclusiveMinimum": above,
        "exclusiveMaximum": below,
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    return dataclasses.field(default=default, metadata=known)


def one_of(default: str, choices: tuple[str, ...]) -> Any:
    """Declare a text that is one of the choices."""
    return dataclasses.field(default=default, metadata={"enum": choices})


def check_fields(table: Any) -> None:
    """Raise if a value of a table is not what its field declares.

    Raises:
        RecipeError: The message names key, rule and value.
    """
    for field in dataclasses.fields(table):
        limits = field.metadata
        if "enum" in limits:
            check_word(table, field.name, limits["enum"])
        elif limits:
            _check_limits(table, field.name, limits)


def _check_limits(table: Any, name: str, limits: Any) -> None:
    value = getattr(table, name)
    least, most = limits.get("minimum"), limits.get("maximum")
    above, below = limits.get("exclusiveMinimum"), limits.get("exclusiveMaximum")
    # A NaN is within no limits.
    if (
        (least if least is not None else -math.inf) <= value < math.inf
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    ):
        return
    if least is not None and most is not None:
        rule = f"from {least} to {most}"
    else:
        rules = {"at least": least, "above": above, "at most": most, "below": below}
        given = [f"{word} {n}" for word, n in rules.items() if n is not None]
        rule = " and ".join(given if above is None else [*given, "finite"])
    raise RecipeError(f"`{name}` must be {rule}. Received: {shown(value)}.")


def check_range(table: Any, name: str, least: float, most: float) -> None:
    """Raise if a value of a table is out of a range that other values give.

    Raises:
        RecipeError: The message names key, rule and value.
    """
    _check_limits(table, name, {"minimum": least, "maximum": most})


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


def check_known(name: Any, known: Collection[str], where: str, kind: str) -> None:
    """Raise if something is named that there is not.

    Args:
        name: The name in the recipe.
        known: The names that there are.
        where: Begins the message.
        kind: What is named, such as "key".

    Raises:
        RecipeError: The message names the nearest known one, or all.
    """
    if isinstance(name, str) and name in known:
        return
    near = nearest(name, known)
    hint = f" Did you mean `{near}`?" if near else f" Known: {cut(', '.join(known))}."
    raise RecipeError(f"{where}there is no {kind} `{cut(name)}`.{hint}")
