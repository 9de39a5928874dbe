"""Read what to search with: one image or embedding, or several and counterexamples."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.datastructures import FormData, UploadFile

from tfdml.messages import cut, shown

from ..gallery.query import Examples, Upload
from .errors import refuse
from .json_image import CutBody, decoded
from .query_fields import SOURCES, Source, source_of
from .strict_json import read_json, too_long

MOST_EXAMPLES = 16
"""The most queries of a search, and the most negatives."""

FILES = {"image": "queries", "negative": "negatives"}
"""The fields of a form with files, by the list that they belong to."""

LISTS = frozenset(FILES.values())
"""The lists of what to search with, in JSON."""

_LONGEST_NAME = 80

Checked = Callable[[bytes, str], bytes]
"""Returns an encoded image, given its name too, or refuses its size."""

Files = dict[str, list[tuple[str, bytes]]]
"""Names and contents of the files in a form, by field."""


async def files_of_form(form: FormData) -> Files:
    """Read the files of a form.

    Raises:
        HTTPException: 400, a field that should be a file is none.
    """
    files: Files = {field: [] for field in FILES}
    for field, found in files.items():
        for file in form.getlist(field):
            if not isinstance(file, UploadFile):
                refuse(f"Send the image as the form field `{field}`, with a file name.")
            found.append(
                (cut(file.filename or field, _LONGEST_NAME), await file.read())
            )
    return files


def examples_of_form(
    files: Files, fields: Mapping[str, str], checked: Checked
) -> Upload | Examples:
    """Read what to search with from the parts of a form.

    Args:
        files: What `files_of_form` returned.
        fields: The fields with text, of which the lists are read.
        checked: Checks each image.

    Returns:
        One image alone, or examples: of each list the files first.

    Raises:
        HTTPException: 400 or 413, it is invalid, or there is nothing to search with.
    """
    lists = {name: _list_of(name, fields.get(name)) for name in LISTS}
    counts = {
        name: len(files[field]) + len(lists[name]) for field, name in FILES.items()
    }
    _check_counts(counts)
    if counts == {"queries": 1, "negatives": 0} and files["image"]:
        ((_, content),) = files["image"]
        return Upload(checked(content, ""))
    found: dict[str, list[Source]] = {}
    for field, name in FILES.items():
        found[name] = [
            *(
                Upload(checked(content, called), called)
                for called, content in files[field]
            ),
            *_sources(name, lists[name], {}, checked),
        ]
    return Examples(found["queries"], found["negatives"])


def examples_of_json(
    values: dict[str, Any], cut_body: CutBody | None, checked: Checked
) -> Source | Examples:
    """Take what to search with out of the values of a JSON body.

    Args:
        values: The values, which lose those that are read.
        cut_body: The images that were cut out of the body.
        checked: Checks each image.

    Returns:
        One image or embedding alone, or examples.

    Raises:
        HTTPException: 400 or 413, it is invalid, or there is nothing to search with.
    """
    given = sorted(set(values) & (SOURCES | {"queries"}))
    if len(given) != 1:
        refuse(
            "The body must have `queries`, or one of `image`, `url`, `embedding`, `id` "
            f"and `text`. Received: {', '.join(given) or 'none'}."
        )
    texts = {} if cut_body is None else dict(cut_body.texts)
    lists = {name: _list_of(name, values.pop(name, [])) for name in LISTS}
    alone = None if given == ["queries"] else {given[0]: values.pop(given[0])}
    counts = {name: len(each) for name, each in lists.items()}
    _check_counts(counts if alone is None else counts | {"queries": 1})
    found = {name: _sources(name, each, texts, checked) for name, each in lists.items()}
    if alone is not None:
        called = given[0] if lists["negatives"] else ""
        found["queries"] = [_source(called, alone, texts, checked)]
    if texts:  # cut out of another place
        raise too_long("The body")
    if alone is not None and not found["negatives"]:
        return found["queries"][0]
    return Examples(found["queries"], found["negatives"])


def _list_of(name: str, value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    if isinstance(value, str):
        value = read_json(f"`{name}`", value.encode())
    if not isinstance(value, list):
        refuse(
            f'`{name}` must be a list of objects such as {{"id": "shoe/17.jpg"}}. '
            f"Received: {shown(value, 80)}."
        )
    return value


def _check_counts(counts: dict[str, int]) -> None:
    for name, count in counts.items():
        if count > MOST_EXAMPLES:
            refuse(
                f"`{name}` must have at most {MOST_EXAMPLES} images or embeddings. "
                f"Received: {count}."
            )
    if not counts["queries"]:
        refuse(
            "Send the image as the form field `image`, or at least one of `queries`: "
            "otherwise there is nothing to search for."
        )


def _sources(
    name: str, values: list[Any], texts: dict[str, memoryview], checked: Checked
) -> list[Source]:
    return [
        _source(f"{name}[{place}]", value, texts, checked)
        for place, value in enumerate(values)
    ]


def _source(
    called: str, value: Any, texts: dict[str, memoryview], checked: Checked
) -> Source:
    """Read one thing to search with.

    Args:
        called: Where it stands, for errors; "" for the body itself.
        value: An object with one of `image`, `url`, `embedding`, `id`, `text`.
        texts: The images that were cut out of the body, which loses this one.
        checked: Checks an image.
    """
    if not isinstance(value, dict) or len(value) != 1 or not set(value) <= SOURCES:
        refuse(
            f"`{called}` must be an object with one of `image`, `url`, `embedding`, "
            f"`id` and `text`. Received: {shown(value, 80)}."
        )
    ((name, given),) = value.items()
    inside = f"{called}." if called.endswith("]") else ""
    if name != "image":
        return source_of(name, given, inside)
    label = f"`{called}`" if called else ""
    return Upload(checked(_decoded(given, texts, inside), label), label)


def _decoded(value: Any, texts: dict[str, memoryview], inside: str) -> bytes:
    text = value.get("b64") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(text, str):
        refuse(f'`{inside}image` must be {{"b64": "..."}}.')
    cut_out = texts.pop(text, None)
    try:
        if cut_out is None and "\\" in text:
            raise ValueError("a backslash, which is not an escape here")
        return decoded(text.encode("ascii") if cut_out is None else cut_out)
    except ValueError:  # also of text that is not ASCII
        where = f" in `{inside}image`" if inside else ""
        refuse(f"`b64`{where} must be base64.")
