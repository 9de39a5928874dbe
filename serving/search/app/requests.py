"""Read the bodies of requests, within limits of size, time and memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from tfdml.messages import shown

from ...web.body import ARRIVAL_SECONDS, BodyReader
from ...web.bounded_work import TIMEOUT_SECONDS, BoundedWork
from ..gallery.gallery import CLASS, is_below
from ..gallery.query import Query
from ..gallery.uploads import Crop
from .errors import refuse, too_large
from .examples import (
    FILES,
    LISTS,
    MOST_EXAMPLES,
    Files,
    examples_of_form,
    examples_of_json,
    files_of_form,
)
from .json_image import cut_body
from .query_fields import (
    OPTIONS,
    SOURCES,
    Scalar,
    attributes_of,
    check_name,
    crop_of,
    query_of,
)
from .strict_json import json_object

_FORM_OVERHEAD = 64 * 1024  # boundaries, headers and small fields around an upload
_BODIES = 4  # with one image of the largest size that are held at once
_IMAGES = 3  # of the largest size that one body may have
_THREADS = 2
_WAITING = 64


@dataclass(frozen=True)
class NewImage:
    """An image to add to the gallery.

    Args:
        content: The encoded image.
        id: Its id, if one was given.
        attributes: Its attributes for the index.
    """

    content: bytes
    id: str | None
    attributes: dict[str, Scalar]


class RequestReader:
    """Read the bodies of requests; the memory they take together is bounded.

    Args:
        max_upload_bytes: Size above which an image is refused, at least 1.
        piece_bytes: Size of the pieces in which a form is parsed on the event loop:
            by default a few milliseconds of work.

    Raises:
        ValueError: The limit is out of range.
    """

    def __init__(self, max_upload_bytes: int, *, piece_bytes: int = 2**18) -> None:
        if max_upload_bytes < 1:
            raise ValueError(
                "`max_upload_bytes` must be at least 1. "
                f"Received: max_upload_bytes={max_upload_bytes}."
            )
        self.max_upload_bytes = max_upload_bytes
        self._piece_bytes = piece_bytes
        # In JSON an image is a third longer.
        one = max_upload_bytes * 4 // 3 + _FORM_OVERHEAD
        self._bodies = BodyReader(_IMAGES * one, _BODIES * one, ARRIVAL_SECONDS)
        self._parsing = BoundedWork("parse", _THREADS, _WAITING, TIMEOUT_SECONDS)

    def close(self) -> None:
        """Begin nothing any more."""
        self._parsing.close()

    async def search(self, request: Request) -> tuple[Query, str | None]:
        """Read the query of `POST /api/search`, and the name of the index to search.

        Raises:
            HTTPException: 400, 408, 413, 415, 503 or 504; the text says why.
        """
        kind = _media_type(request)
        async with self._body(request) as body:
            if kind == "application/json":
                return await self._parsing.run(lambda: self._search_of_json(body))
            async with self._form(request, body, 2 * MOST_EXAMPLES + 1) as form:
                files = await files_of_form(form)
                fields = _fields(form, OPTIONS | LISTS, FILES)
        return await self._parsing.run(lambda: self._search_of_form(files, fields))

    async def pair(
        self, request: Request, names: Collection[str] = ()
    ) -> tuple[bytes | None, Crop | None, dict[str, str]]:
        """Read a form about a query and one of its hits.

        Args:
            request: Has the query as the file `image` or its `id`, perhaps the region
                `crop` of it, and `hit`, an id.
            names: Other fields that it may have.

        Returns:
            The encoded image of the query, if it is none of the gallery; the region of
            the query; the fields.

        Raises:
            HTTPException: 400, 408, 413, 415, 503 or 504; the text says why.
        """
        if _media_type(request) == "application/json":
            raise HTTPException(415, "Send the request as multipart/form-data.")
        async with self._body(request) as body, self._form(request, body) as form:
            content = await self._image(form) if "image" in form else None
            fields = _fields(form, {"id", "hit", "crop", *names}, {"image"})
        if (content is None) == (not fields.get("id")):
            refuse("Send the query as the file `image`, or its `id`, not both.")
        if not fields.get("hit"):
            refuse("Name the image of the gallery with the field `hit`.")
        crop = crop_of(fields["crop"]) if fields.get("crop") else None
        return content, crop, fields

    async def new_image(self, request: Request) -> NewImage:
        """Read the image to add from `POST /api/images`.

        Raises:
            HTTPException: 400, 408, 413, 415, 503 or 504; the text says why.
        """
        if _media_type(request) == "application/json":
            raise HTTPException(415, "Send the image as multipart/form-data.")
        async with self._body(request) as body, self._form(request, body) as form:
            content = await self._image(form)
            values = _fields(form, {"id", "class", "attributes"}, {"image"})
        id_ = values.get("id", "")
        if id_:
            check_name("id", id_)
            if not is_below(id_.replace("\\", "/")):
                refuse(
                    "`id` must be a path below the gallery, such as shoe/17.jpg. "
                    f"Received: {id_[:100]!r}."
                )
        text = values.get("attributes", "")
        attributes = await self._parsing.run(lambda: attributes_of(text))
        if name := values.get("class", ""):
            check_name("class", name)
            attributes[CLASS] = name
        return NewImage(content, id_ or None, attributes)

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
                    raise self._too_large_together() from error
                if error.status_code == 503:
                    again = {"retry-after": "1"}
                    raise HTTPException(503, error.detail, again) from error
                raise
            except ClientDisconnect as error:
                raise HTTPException(400, "The upload was cut off.") from error
            yield body

    @contextlib.asynccontextmanager
    async def _form(
        self, request: Request, body: bytearray, files: int = 1
    ) -> AsyncIterator[FormData]:
        size = self._piece_bytes
        starts = iter(range(0, len(body), size))

        async def receive() -> Message:
            await asyncio.sleep(0)  # let other requests run between two pieces
            start = next(starts, len(body))
            piece = bytes(body[start : start + size])
            more = start + size < len(body)
            return {"type": "http.request", "body": piece, "more_body": more}

        again = Request(request.scope, receive)
        async with again.form(max_files=files, max_fields=16) as form:
            yield form

    async def _image(self, form: FormData) -> bytes:
        file = form.get("image")
        if not isinstance(file, UploadFile):
            raise HTTPException(400, "Send the image as the form field `image`.")
        return self._checked(await file.read())

    def _too_large_together(self) -> HTTPException:
        one, most = self.max_upload_bytes / 1e6, _IMAGES * self.max_upload_bytes / 1e6
        return HTTPException(
            413,
            f"This is too large. At most {one:g} MB are allowed for an image, and "
            f"{most:g} MB for all images of a search.",
        )

    def _checked(self, content: bytes, name: str = "") -> bytes:
        called = name and f"{name}: "
        if not content:
            raise HTTPException(400, f"{called}This file is empty.")
        if len(content) > self.max_upload_bytes:
            error = too_large(self.max_upload_bytes)
            raise HTTPException(error.status_code, f"{called}{error.detail}")
        return content

    def _search_of_form(
        self, files: Files, fields: dict[str, str]
    ) -> tuple[Query, str | None]:
        source = examples_of_form(files, fields, self._checked)
        return query_of(source, {name: fields[name] for name in fields.keys() - LISTS})

    def _search_of_json(self, body: bytearray) -> tuple[Query, str | None]:
        cut = cut_body(body)
        values = json_object("The body", body if cut is None else cut.rest)
        unknown = set(values) - SOURCES - OPTIONS - LISTS
        if unknown:
            refuse(f"The body must not have {shown(min(unknown))}.")
        return query_of(examples_of_json(values, cut, self._checked), values)


def _media_type(request: Request) -> str:
    declared = request.headers.get("content-type", "")
    kind = declared.partition(";")[0].strip().lower()
    if kind not in ("application/json", "multipart/form-data"):
        raise HTTPException(
            415,
            "Send multipart/form-data, with the image as the form field `image`, or "
            "application/json.",
        )
    return kind


def _fields(
    form: FormData, names: Collection[str], files: Collection[str]
) -> dict[str, str]:
    """Return the text fields of a form, beside those with files."""
    values: dict[str, str] = {}
    for name, value in form.multi_items():
        if name in files:
            continue
        if name not in names or not isinstance(value, str) or name in values:
            refuse(
                f"The form may have the fields {', '.join(sorted(names))}, each once. "
                f"Received: {shown(name)}."
            )
        values[name] = value
    return values
