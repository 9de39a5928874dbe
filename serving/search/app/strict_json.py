"""Read JSON from strangers: bounded, finite numbers, valid text.

The parser of the standard library holds the interpreter while it works, whatever thread
calls it. So its input is bounded first, in bytes and in values: no JSON delays the
other requests for long.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from starlette.exceptions import HTTPException

from tfdml.messages import shortened

LONGEST_JSON = 1_000_000
"""The most bytes of JSON that are parsed."""

_DEEPEST = 16
_MOST_SIGNS = 50_000
_SIGNS = b",[{"  # one before each value, but for the outermost


def json_object(name: str, text: bytes | bytearray) -> dict[str, Any]:
    """Read a JSON object, as `read_json` does."""
    values = read_json(name, text)
    if not isinstance(values, dict):
        raise HTTPException(400, f"{name} must be a JSON object.")
    return values


def read_json(name: str, text: bytes | bytearray) -> Any:
    """Read JSON whose numbers are finite and fit 64 bits, and whose text is UTF-8.

    Args:
        name: Name of the text, for the error.
        text: The encoded text.

    Returns:
        The value, nested at most 16 deep.

    Raises:
        HTTPException: 413, it has more than a million bytes or about 50,000 values;
            400, it is not such JSON.
    """
    if len(text) > LONGEST_JSON:
        raise too_long(name)
    if sum(text.count(sign) for sign in _SIGNS) > _MOST_SIGNS:
        raise HTTPException(
            413,
            f"{name} may have at most {_MOST_SIGNS:,} commas and opening brackets. "
            "Ask for less in one request.",
        )
    try:
        values = json.loads(
            text, parse_int=_integer, parse_float=_finite, parse_constant=_finite
        )
        for value in _strings(values):
            value.encode()
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise HTTPException(400, f"{name} must be JSON: {shortened(error)}.") from error
    return values


def too_long(name: str) -> HTTPException:
    """Create the error for too much JSON."""
    return HTTPException(
        413,
        f"{name} may have at most {LONGEST_JSON / 1e6:g} MB of JSON, besides the "
        "image in `image`. Ask for less in one request.",
    )


def _integer(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError("a whole number does not fit in 64 bits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield all strings of a value that is not nested too deeply."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        if value and isinstance(value[0], int | float):  # an embedding
            value = [item for item in value if not isinstance(item, int | float)]
        for item in value:
            yield from _strings(item, depth + 1)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _strings(item, depth + 1)
