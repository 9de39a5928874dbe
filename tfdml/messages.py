"""Put values into messages: short and printable, whatever a user or a file holds."""

import difflib
import reprlib
from collections.abc import Collection
from typing import Any

LONGEST = 500
"""Characters of a whole message, at most."""

_SHOWN = 150  # characters of a value in a message
_REASON = 200  # and of what another library says

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _SHOWN


def shown(value: Any, most: int = _SHOWN) -> str:
    """Return a short form of a value, as Python writes it.

    Args:
        value: Anything: of an array its shape and type are shown, of a long text or
            list the start and the end. Each character is printable.
        most: The length of the result, at most; at least 16 characters.

    Example:
        >>> shown("shoe")
        "'shoe'"
        >>> len(shown("x" * 10**6)) <= 150
        True
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and hasattr(value, "dtype"):
        return cut(f"an array of shape {tuple(shape)}, dtype {value.dtype}", most)
    if isinstance(value, bytes | bytearray):
        value = bytes(value[: 2 * _SHOWN])  # a copy, but never of megabytes
    try:
        text = repr(value) if isinstance(value, float) else _repr.repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = f"a value of type {type(value).__name__}"
    return cut(text, most)


def cut(text: object, most: int = _SHOWN) -> str:
    """Return a text that fits in a message, such as a path, without quotes.

    Args:
        text: A text, or what has one. Line ends become spaces, and characters that
            cannot be printed are escaped, such as those that color a terminal.
        most: The length of the result, at most; at least 16 characters. A longer text
            loses its middle.
    """
    try:
        short = _middle_out(str(text), most)
    except ValueError:  # as in `shown`
        short = f"a value of type {type(text).__name__}"
    if not short.isprintable():
        short = " ".join(line.strip() for line in short.splitlines())
        short = "".join(
            each if each.isprintable() else ascii(each)[1:-1] for each in short
        )
    return _middle_out(short, most)


def nearest(word: object, known: Collection[str]) -> str | None:
    """Return the known word that was probably meant, None if none is near."""
    found = difflib.get_close_matches(cut(word, 40), known, n=1, cutoff=0.5)
    return found[0] if found else None


def shortened(error: BaseException, most: int = _REASON) -> str:
    """Return the text of an error as part of another one, without its period."""
    text = " ".join(_middle_out(str(error), 4 * most).split())
    return cut(text or type(error).__name__, most).removesuffix(".")


def bounded(text: str) -> str:
    """Return a whole message of at most 500 characters, which keeps its line ends.

    This is the last net, where a message leaves the program: whatever says it shortens
    the values in it, so that its rule and its remedy are whole.
    """
    lines = _middle_out(text, LONGEST).splitlines()
    return _middle_out("\n".join(cut(line, LONGEST) for line in lines), LONGEST)


def _middle_out(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = (most - 3) // 2
    return f"{text[:head]}...{text[len(text) - (most - 3 - head) :]}"
