"""Check arguments: return the value, or name argument, rule and value."""

import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from tfdml.messages import shown

_FINITE = sys.float_info.max
_LARGEST = 2**128  # NumPy's seeds are below; Python does not write all larger numbers


def above_zero(name: str, value: float, most: float = _FINITE) -> float:
    """Return a number that must be above 0 and finite, or at most some number."""
    rule = f"above 0 and {_ending(most)}"
    return _number(name, value, rule, lambda x: 0 < x <= most)


def at_least_zero(name: str, value: float, most: float = _FINITE) -> float:
    """Return a number that must be at least 0 and finite, or at most some number."""
    rule = f"at least 0 and {_ending(most)}"
    return _number(name, value, rule, lambda x: 0 <= x <= most)


def within(name: str, value: float, least: float, most: float) -> float:
    """Return a number that must be from the least to the most."""
    rule = f"from {least:g} to {most:g}"
    return _number(name, value, rule, lambda x: least <= x <= most)


def finite(name: str, value: float) -> float:
    """Return a number that must be finite."""
    return _number(name, value, "finite", lambda x: abs(x) < float("inf"))


def fraction(name: str, value: float) -> float:
    """Return a number that must be at least 0 and below 1."""
    return _number(name, value, "at least 0 and below 1", lambda x: 0 <= x < 1)


def in_range(name: str, value: float, least: float, most: float) -> float:
    """Return a number that must be from the least to the most."""
    return _number(name, value, f"from {least} to {most}", lambda x: least <= x <= most)


def whole(name: str, value: int, least: int = 1) -> int:
    """Return a whole number that must not be below the least.

    2.0 counts as 2, as in a config that went through JSON; True does not count as 1.
    """
    # Nearly always, and a search is short.
    if type(value) is int and least <= value < _LARGEST:
        return value
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not _is_whole(value) or value < least:
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}. "
            f"Received: {name}={shown(value)}."
        )
    if value >= _LARGEST:
        raise ValueError(
            f"`{name}` must be below 2**128. Received: {name}={shown(value)}."
        )
    return int(value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> Any:
    """Return a word that must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"`{name}` must be one of {', '.join(choices)}. "
            f"Received: {name}={shown(value)}."
        )
    return value


def boolean(name: str, value: bool) -> bool:
    """Return a value that must be True or False; 1, 0 and words do not count."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(
            f"`{name}` must be True or False. Received: {name}={shown(value)}."
        )
    return bool(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) or float(value).is_integer()


def _ending(most: float) -> str:
    return "finite" if most == _FINITE else f"at most {most:g}"


def _number(name: str, value: Any, rule: str, holds: Any) -> float:
    # A comparison with NaN is False, so that NaN is refused by every rule.
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not holds(value) or abs(value) > sys.float_info.max:
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={shown(value)}.")
    return float(value)
