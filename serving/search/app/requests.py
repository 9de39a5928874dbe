"""What is asked of the search service: bodies and parameters, read and checked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from serving.search.app.json_image import cut_body, decoded
from serving.search.app.strict_json import json_object, read_json, too_long
from serving.search.app.web import too_large, whole_number
from serving.search.gallery.gallery import CLASS
from serving.search.gallery.stored_images import PICTURE
from serving.search.gallery.uploads import Crop
from serving.web.body import ARRIVAL_SECONDS, BodyReader
from serving.web.bounded_work import TIMEOUT_SECONDS, BoundedWork
from tfdml.index import Where, where_from_json

MAX_K = 100
DEFAULT_K = 24

_FORM_OVERHEAD = 64 * 1024  # boundaries, headers and small fields around an upload
_BODIES = 4  # of the largest size that are held at one time
_THREADS = 2
_WAITING = 64
_PIECE_BYTES = 2**18  # of a form, which the event loop reads in a few milliseconds
_LONGEST_ID = 500
_MOST_ATTRIBUTES = 32
_MOST_EXCLUDED = 10_000
_KINDS = {"image", "url", "embedding", "id"}
_OTHERS = {"k", "index", "where", "exclude", "crop"}

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Asked:
    """A search that is asked for, with one of the first four.

    Args:
        picture: An encoded picture.
        url: Where a picture is.
        embedding: An embedding.
        id: A picture of the gallery.
        k: How many hits, 1 to `MAX_K`.
        index: Name of the index; None for the first.
        where: A filter.
        exclude: Ids to leave out.
        crop: Which part of the picture to search with.
    """

    picture: bytes | None = None
    url: str | None = None
    embedding: list[float] | None = None
    id: str | None = None
    k: int = DEFAULT_K
    index: str | None = None
    where: Where | None = None
    exclude: list[str] = field(default_factory=list)
    crop: Crop | None = None


@dataclass(frozen=True)
class NewPicture:
    """A picture that is to be added.

    Args:
        picture: Encoded bytes.
        id: The id that it shall have, if one was named.
        attributes: What the index shall know of it.
    """

    picture: bytes
    id: str | None
    attributes: dict[str, Scalar]


class RequestReader:
    """Reads the bodies of requests; what it holds at one time is bounded.

    Args:
        max_upload_bytes: Size above which a picture is refused, at least 1.

    Raises:
        ValueError: The limit is out of range.
    """

    def __init__(self, max_upload_bytes: int) -> None:
        if max_upload_bytes < 1:
            raise ValueError(
                "`max_upload_bytes` must be at least 1. "
                f"Received: max_upload_bytes={max_upload_bytes}."
            )
        self.max_upload_bytes = max_upload_bytes
        # In JSON a picture is a third longer.
        longest = max_upload_bytes * 4 // 3 + _FORM_OVERHEAD
        self._bodies = BodyReader(longest, _BODIES * longest, ARRIVAL_SECONDS)
        self._parsing = BoundedWork("parse", _THREADS, _WAITING, TIMEOUT_SECONDS)

    def close(self) -> None:
        """Begin nothing any more."""
        self._parsing.close()

    async def search(self, request: Request) -> Asked:
        """Read what `POST /api/search` asks for.

        Raises:
            HTTPException: 400, 408, 413, 415, 503 or 504; the text says why.
        """
        kind = _media_type(request)
        async with self._body(request) as body:
            if kind == "application/json":
                return await self._parsing.run(partial(self._search_of_json, body))
            async with self._form(request, body) as form:
                picture = await self._picture(form)
                values = _fields(form, _OTHERS)
        parameters = await self._parsing.run(partial(_parameters, values))
        return Asked(picture=picture, **parameters)

    async def new_picture(self, request: Request) -> NewPicture:
        """Read what `POST /api/images` asks for.

        Raises:
            HTTPException: 400, 408, 413, 415, 503 or 504; the text says why.
        """
        if _media_type(request) == "application/json":
            raise HTTPException(415, "Send the picture as multipart/form-data.")
        async with self._body(request) as body, self._form(request, body) as form:
            picture = await self._picture(form)
            values = _fields(form, {"id", "class", "attributes"})
        id_ = values.get("id", "")
        if id_:
            _check_name("id", id_)
        text = values.get("attributes", "")
        attributes = await self._parsing.run(partial(_attributes, text))
        if name := values.get("class", ""):
            _check_name("class", name)
            attributes[CLASS] = name
        return NewPicture(picture, id_ or None, attributes)

    @contextlib.asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytearray]:
        declared = request.headers.get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()):
            raise HTTPException(400, "`Content-Length` must be a whole number.")
        async with contextlib.AsyncExitStack() as stack:
            try:
                body = await stack.enter_async_context(self._bodies.read(request))
            except HTTPException as error:
                if error.status_code == 413:
                    raise too_large(self.max_upload_bytes) from error
                if error.status_code == 503:
                    again = {"retry-after": "1"}
                    raise HTTPException(503, error.detail, again) from error
                raise
            except ClientDisconnect as error:
                raise HTTPException(400, "The upload broke off.") from error
            yield body

    @contextlib.asynccontextmanager
    async def _form(self, request: Request, body: bytearray) -> AsyncIterator[FormData]:
        starts = iter(range(0, len(body), _PIECE_BYTES))

        async def receive() -> Message:
            await asyncio.sleep(0)  # other requests have their turn between two pieces
            start = next(starts, len(body))
            end = start + _PIECE_BYTES
            piece = bytes(body[start:end])
            return {"type": "http.request", "body": piece, "more_body": end < len(body)}

        again = Request(request.scope, receive)
        async with again.form(max_files=1, max_fields=16) as form:
            yield form

    async def _picture(self, form: FormData) -> bytes:
        file = form.get("image")
        if not isinstance(file, UploadFile):
            raise HTTPException(400, "Send the picture as the form field `image`.")
        return self._checked(await file.read())

    def _checked(self, picture: bytes) -> bytes:
        if not picture:
            raise HTTPException(400, "This file is empty.")
        if len(picture) > self.max_upload_bytes:
            raise too_large(self.max_upload_bytes)
        return picture

    def _search_of_json(self, body: bytearray) -> Asked:
        cut = cut_body(body)
        values = json_object("The body", body if cut is None else cut.rest)
        if cut is not None and values.get("image") != {"b64": cut.mark}:
            raise too_long("The body")
        unknown = set(values) - _KINDS - _OTHERS
        if unknown:
            refuse(f"The body must not have {min(unknown)[:100]!r}.")
        given = sorted(set(values) & _KINDS)
        if len(given) != 1:
            refuse(
                "The body must have one of `image`, `url`, `embedding` and `id`. "
                f"Received: {', '.join(given) or 'none'}."
            )
        others = {name: values[name] for name in set(values) & _OTHERS}
        parameters = _parameters(others)
        value = values[given[0]]
        if given == ["image"]:
            picture = _decoded(value, None if cut is None else cut.text)
            return Asked(picture=self._checked(picture), **parameters)
        if given == ["embedding"]:
            if parameters.get("crop") is not None:
                refuse("`crop` must not be there with `embedding`.")
            return Asked(embedding=_numbers("embedding", value), **parameters)
        if not isinstance(value, str):
            refuse(f"`{given[0]}` must be a string.")
        if given == ["url"]:
            return Asked(url=value, **parameters)
        return Asked(id=value, **parameters)


def where_of(text: str | None) -> Where | None:
    """Read a filter from the JSON text of a query parameter.

    Raises:
        HTTPException: 400, it is no filter.
    """
    return None if not text else _where(json_object("`where`", text.encode()))


def refuse(text: str) -> NoReturn:
    """Raise the error for a request that is not as it should be."""
    raise HTTPException(400, text)


def _media_type(request: Request) -> str:
    declared = request.headers.get("content-type", "")
    kind = declared.partition(";")[0].strip().lower()
    if kind not in ("application/json", "multipart/form-data"):
        raise HTTPException(
            415,
            "Send multipart/form-data, with the picture as the form field `image`, or "
            "application/json.",
        )
    return kind


def _fields(form: FormData, names: set[str]) -> dict[str, str]:
    """Return the text fields of a form; empty ones count as left out."""
    values: dict[str, str] = {}
    for name, value in form.multi_items():
        if name == "image":
            continue
        if name not in names or not isinstance(value, str) or name in values:
            refuse(
                f"The form may have the fields {', '.join(sorted(names))}, each once. "
                f"Received: {name[:40]!r}."
            )
        values[name] = value
    return values


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read what all searches may have, from texts or from JSON values."""
    found: dict[str, Any] = {}
    k = values.get("k")
    if k is not None:
        found["k"] = whole_number(str(k), "k", 1, MAX_K)
    if (index := values.get("index")) is not None:
        if not isinstance(index, str):
            refuse("`index` must be a string.")
        found["index"] = index or None
    # An empty field of a form is one that was left out.
    if (where := values.get("where")) not in (None, ""):
        found["where"] = (
            where_of(where) if isinstance(where, str) else _where(_object(where))
        )
    if (exclude := values.get("exclude")) not in (None, ""):
        if isinstance(exclude, str):
            exclude = read_json("`exclude`", exclude.encode())
        found["exclude"] = _exclude(exclude)
    if (crop := values.get("crop")) not in (None, ""):
        found["crop"] = _crop(crop)
    return found


def _where(values: dict[str, Any]) -> Where:
    try:
        return where_from_json(values)
    except ValueError as error:
        refuse(str(error)[:500])


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse("`where` must be an object of conditions.")
    return value


def _exclude(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        refuse("`exclude` must be a list of ids.")
    if len(value) > _MOST_EXCLUDED:
        refuse(f"`exclude` must have at most {_MOST_EXCLUDED} ids.")
    if any("\0" in id_ for id_ in value):
        refuse("`exclude` must not contain the character NUL.")
    return value


def _crop(value: Any) -> Crop:
    try:
        if isinstance(value, str):
            value = [float(part) for part in value.split(",")[:5]]
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


def _decoded(value: Any, cut: memoryview | None) -> bytes:
    """Decode a picture; `cut` is its text, where that was cut out of the body."""
    text = value.get("b64") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(text, str):
        refuse('`image` must be {"b64": "..."}.')
    try:
        if cut is None and "\\" in text:
            raise ValueError("a backslash, which is no escape any more")
        return decoded(text.encode("ascii") if cut is None else cut)
    except ValueError:  # also of text that is not ASCII
        refuse("`b64` must be base64.")


def _check_name(name: str, value: str) -> None:
    # What is printable is also UTF-8: halves of surrogate pairs are not.
    if not value.isprintable() or len(value) > _LONGEST_ID or value != value.strip():
        refuse(
            f"`{name}` must have 1 to {_LONGEST_ID} printable characters, without "
            "spaces at its ends."
        )


def _attributes(text: str) -> dict[str, Scalar]:
    if not text:
        return {}
    values = json_object("`attributes`", text.encode())
    if len(values) > _MOST_ATTRIBUTES:
        refuse(f"`attributes` must be at most {_MOST_ATTRIBUTES}.")
    for name, value in values.items():
        _check_name("attributes", name)
        if name in (CLASS, PICTURE):
            refuse(f"`attributes` must not have {name!r}, which has its own meaning.")
        if not isinstance(value, str | int | float | bool):
            refuse(
                f"`attributes[{name!r}]` must be a string, a number or a boolean. "
                f"Received: {type(value).__name__}."
            )
        if isinstance(value, str) and "\0" in value:
            refuse(f"`attributes[{name!r}]` must not contain the character NUL.")
    return values
