"""Read the fields of a query, from the texts of a form or from JSON values.

msgspec was tried in place of these checks. Its errors name the field and the rule but
not the value, and filters, base64, forms and rules across fields would stay here: with
the same refusals it needs more lines, not fewer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tfdml.index import Where, where_from_json
from tfdml.messages import shown

from ..gallery.gallery import CLASS
from ..gallery.query import Address, Embedding, Examples, Member, Query, Text, Upload
from ..gallery.stored_images import STORED_IMAGE
from ..gallery.uploads import Crop
from .errors import refuse
from .strict_json import json_object, read_json

MAX_K = 100
DEFAULT_K = 24
MAX_EXPAND = 100
SOURCES = frozenset({"image", "url", "embedding", "id", "text"})
OPTIONS = frozenset(
    {"k", "index", "where", "exclude", "crop", "expand", "negative_weight"}
)

_LONGEST_NUMBER = 18
_LONGEST_ID = 500
_LONGEST_TEXT = 1_000
_MOST_ATTRIBUTES = 32
_MOST_EXCLUDED = 10_000

Scalar = str | int | float | bool
Source = Upload | Address | Embedding | Member | Text


def query_of(
    source: Source | Examples, options: Mapping[str, Any]
) -> tuple[Query, str | None]:
    """Read the options of a query.

    Args:
        source: What to search with. `negative_weight` becomes that of `Examples`.
        options: Texts or JSON values, by name. None, and an empty text other than
            `k`, count as not given.

    Returns:
        The query, and the name of the index to search; None for the first.

    Raises:
        HTTPException: 400 or 413, a value is invalid.
    """
    given = {
        name: value
        for name, value in options.items()
        if value is not None and (value != "" or name == "k")
    }
    index = given.get("index")
    if not isinstance(index, str | None):
        refuse("`index` must be a string.")
    where, exclude = given.get("where"), given.get("exclude", [])
    if isinstance(where, str):
        where = where_of(where)
    elif where is not None:
        where = _where(where)
    if isinstance(exclude, str):
        exclude = read_json("`exclude`", exclude.encode())
    crop = crop_of(given["crop"]) if "crop" in given else None
    if crop is not None and isinstance(source, Embedding | Text):
        refuse("`crop` must not be given with `embedding` or `text`.")
    k = whole_number(str(given.get("k", DEFAULT_K)), "k", 1, MAX_K)
    expand = whole_number(str(given.get("expand", 0)), "expand", 0, MAX_EXPAND)
    weight = _weight(given["negative_weight"]) if "negative_weight" in given else None
    if isinstance(source, Examples):
        first, *others = source.positives
        if crop is not None and (others or isinstance(first, Embedding | Text)):
            refuse("`crop` must be given with one image alone.")
        if weight is not None:
            source = replace(source, negative_weight=weight)
    return Query(source, k, where, _exclude(exclude), crop, expand), index


def _weight(value: Any) -> float:
    try:
        weight = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        weight = -1.0
    if not 0 <= weight < 1:
        refuse(
            "`negative_weight` must be at least 0 and below 1. "
            f"Received: negative_weight={shown(value, 40)}."
        )
    return weight


def source_of(name: str, value: Any, inside: str = "") -> Source:
    """Read what to search with from a JSON value, other than an image.

    Args:
        name: "url", "embedding", "id" or "text".
        value: The value.
        inside: What stands before the name in an error, such as "queries[1].".

    Raises:
        HTTPException: 400, it is invalid.
    """
    if name == "embedding":
        return Embedding(_numbers(f"{inside}embedding", value))
    if not isinstance(value, str):
        refuse(f"`{inside}{name}` must be a string.")
    if name == "text":
        return Text(_checked_text(f"{inside}text", value))
    return Address(value) if name == "url" else Member(value)


def _checked_text(name: str, text: str) -> str:
    text = " ".join(text.split())
    if not text or len(text) > _LONGEST_TEXT:
        refuse(
            f"`{name}` must have 1 to {_LONGEST_TEXT:,} characters. "
            f"Received: {len(text):,}."
        )
    return text


def where_of(text: str | None) -> Where | None:
    """Read a filter from the JSON text of a parameter.

    Raises:
        HTTPException: 400 or 413, it is not a filter.
    """
    return None if not text else _where(json_object("`where`", text.encode()))


def whole_number(text: str, name: str, least: int, most: int | None = None) -> int:
    """Read a whole number from a request.

    Args:
        text: What was sent.
        name: Name of the argument, for the error.
        least: Smallest number allowed.
        most: Largest number allowed, if any.

    Returns:
        The number.

    Raises:
        HTTPException: 400, the text is not a whole number in the range.
    """
    # Python takes long to read a number of thousands of digits, or refuses.
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER:
        number = int(text)
        if least <= number and (most is None or number <= most):
            return number
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    refuse(
        f"`{name}` must be a whole number {limits}. Received: {name}={shown(text, 40)}."
    )


def check_name(name: str, value: str) -> None:
    """Check an id, a class or the name of an attribute.

    Raises:
        HTTPException: 400, it is invalid.
    """
    # What is printable is also UTF-8: halves of surrogate pairs are not.
    if not value.isprintable() or len(value) > _LONGEST_ID or value != value.strip():
        refuse(
            f"`{name}` must have 1 to {_LONGEST_ID} printable characters, without "
            "spaces at its ends."
        )


def attributes_of(text: str) -> dict[str, Scalar]:
    """Read the attributes of a new image from JSON text.

    Raises:
        HTTPException: 400 or 413, they are invalid.
    """
    if not text:
        return {}
    values = json_object("`attributes`", text.encode())
    if len(values) > _MOST_ATTRIBUTES:
        refuse(
            f"`attributes` must have at most {_MOST_ATTRIBUTES} names. "
            f"Received: {len(values)}."
        )
    for name, value in values.items():
        check_name("attributes", name)
        if name in (CLASS, STORED_IMAGE):
            refuse(
                f"`attributes` must not have {shown(name)}, which has its own meaning."
            )
        if not isinstance(value, str | int | float | bool):
            refuse(
                f"`attributes[{shown(name)}]` must be a string, a number or a boolean. "
                f"Received: {type(value).__name__}."
            )
        if isinstance(value, str) and "\0" in value:
            refuse(f"`attributes[{shown(name)}]` must not contain the character NUL.")
    return values


def _where(values: Any) -> Where:
    try:
        return where_from_json(values)
    except ValueError as error:
        refuse(str(error))


def _exclude(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        refuse("`exclude` must be a list of ids.")
    if len(value) > _MOST_EXCLUDED:
        refuse(
            f"`exclude` must have at most {_MOST_EXCLUDED:,} ids. "
            f"Received: {len(value):,}."
        )
    if any("\0" in id_ for id_ in value):
        refuse("`exclude` must not contain the character NUL.")
    return value


def crop_of(value: Any) -> Crop:
    """Read a region from text or a JSON value.

    Raises:
        HTTPException: 400, it is not a region.
    """
    try:
        if isinstance(value, str):
            value = [float(number) for number in value.split(",")[:5]]
        return Crop.of(_numbers("crop", value))
    except ValueError as error:
        text = str(error)
        refuse(text if "`crop`" in text else "`crop` must be four numbers.")


def _numbers(name: str, value: Any) -> list[float]:
    if not isinstance(value, list) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in value
    ):
        refuse(f"`{name}` must be a list of numbers.")
    return [float(number) for number in value]
