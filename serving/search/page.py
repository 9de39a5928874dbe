"""The search page: an HTTP service over `ImageSearch`, and the page that uses it.

    GET  /                          the page
    GET  /api/info                  gallery, model, index, limits
    GET  /api/images                pictures in order (offset, limit)
    GET  /api/images/sample         pictures at random (seed, limit)
    GET  /api/similar/{row}         nearest to a picture of the gallery (k)
    POST /api/search                nearest to an upload (form: image, k)
    GET  /images/{row}              thumbnail

Where the gallery has a calibration, a reply with hits says `match`, whether the first
one is an answer, with the `threshold`, and each hit says so too. Every error is
`{"error": "a sentence"}`. Pictures are named by their row; no path of a request reaches
the file system.
"""

import hashlib
import random
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving.client import Credentials, EndpointError
from serving.search.image_search import Hit, ImageSearch, open_search
from serving.search.thumbnails import MEDIA_TYPE, Thumbnails
from serving.search.web import (
    SecurityHeaders,
    read_body,
    static_file,
    too_large,
    whole_number,
)
from serving.sockets import open_socket, serve, url_of
from tfdml.images import UnreadableImageError

__all__ = ["create_app", "run"]

MAX_UPLOAD_BYTES = 20_000_000
MAX_K = 100
DEFAULT_K = 24

_STATIC = Path(__file__).parent / "static"
_STATIC_FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/script.js": ("script.js", "text/javascript"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
_FOREVER = "public, max-age=31536000, immutable"

Result = TypeVar("Result")


def create_app(
    search: ImageSearch, *, max_upload_bytes: int = MAX_UPLOAD_BYTES
) -> Starlette:
    """Make the application of the search page.

    Args:
        search: Search over the gallery to show.
        max_upload_bytes: Size above which an uploaded file is refused, at least 1.

    Returns:
        An ASGI application.
    """
    if max_upload_bytes < 1:
        raise ValueError(
            "`max_upload_bytes` must be at least 1. "
            f"Received: max_upload_bytes={max_upload_bytes}."
        )
    page = _Page(search, max_upload_bytes)
    return Starlette(
        routes=[
            *(
                Route(path, static_file(_STATIC / name, media_type))
                for path, (name, media_type) in _STATIC_FILES.items()
            ),
            Route("/api/info", page.info),
            Route("/api/images", page.images),
            Route("/api/images/sample", page.sample),
            Route("/api/similar/{row}", page.similar),
            Route("/api/search", page.upload, methods=["POST"]),
            Route("/images/{row}", page.thumbnail),
        ],
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={
            HTTPException: _http_error,
            EndpointError: partial(_error, 502),
            UnreadableImageError: partial(_error, 400),
            Exception: _internal_error,
        },
    )


class _Page:
    """The requests over one gallery."""

    def __init__(self, search: ImageSearch, max_upload_bytes: int) -> None:
        self._search = search
        self._gallery = search.gallery
        self._max_upload_bytes = max_upload_bytes
        self._thumbnails = Thumbnails(search.file)
        # The same row may be another picture in another run of the server.
        self._run = secrets.token_hex(4)
        # A large picture takes some hundred megabytes while it is decoded.
        self._searching = CapacityLimiter(4)
        self._drawing = CapacityLimiter(4)

    async def info(self, request: Request) -> Response:
        gallery = self._gallery
        known = gallery.calibration
        return JSONResponse(
            {
                "images": len(gallery.paths),
                "classes": len(gallery.classes()),
                "model": {
                    "name": gallery.model_name,
                    "version": gallery.model_version,
                    "fingerprint": gallery.model_fingerprint,
                },
                "index": self._search.index.settings.method,
                "dimension": self._search.index.dimension,
                "metric": "cosine",
                "max_k": min(MAX_K, len(gallery.paths)),
                "max_upload_bytes": self._max_upload_bytes,
            }
            | ({"calibration": known.to_json()} if known else {})
        )

    async def images(self, request: Request) -> Response:
        total = len(self._gallery.paths)
        offset = whole_number(request.query_params.get("offset", "0"), "offset", 0)
        limit = whole_number(request.query_params.get("limit", "24"), "limit", 1, 100)
        rows = range(total)[offset : offset + limit]
        return JSONResponse(
            {"total": total, "images": [self._item(row) for row in rows]}
        )

    async def sample(self, request: Request) -> Response:
        total = len(self._gallery.paths)
        seed = whole_number(request.query_params.get("seed", "0"), "seed", 0)
        limit = whole_number(request.query_params.get("limit", "24"), "limit", 1, 100)
        generator = random.Random(seed)  # noqa: S311 (no secret depends on it)
        rows = generator.sample(range(total), min(limit, total))
        return JSONResponse(
            {"total": total, "images": [self._item(row) for row in rows]}
        )

    async def thumbnail(self, request: Request) -> Response:
        row = self._row(request)
        draw = partial(self._thumbnails.get, row)
        content = await self._read(row, draw, self._drawing)
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        is_pinned = request.query_params.get("v") == self._run
        headers = {"etag": etag, "cache-control": _FOREVER if is_pinned else "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=MEDIA_TYPE, headers=headers)

    async def similar(self, request: Request) -> Response:
        row = self._row(request)
        if len(self._gallery.paths) == 1:
            raise HTTPException(404, "There is no other image in the gallery.")
        k = self._k(request.query_params.get("k"), len(self._gallery.paths) - 1)
        start = time.perf_counter()
        find = partial(self._search.similar, row, k)
        hits = await self._read(row, find, self._searching)
        return self._hits(hits, start, query=self._item(row))

    async def upload(self, request: Request) -> Response:
        body = await read_body(request, self._max_upload_bytes)
        async with body.form(max_files=1, max_fields=8) as form:
            file = form.get("image")
            k = form.get("k")
            if not isinstance(file, UploadFile):
                raise HTTPException(400, "Send the picture as the form field `image`.")
            picture = await file.read()
        if not picture:
            raise HTTPException(400, "This file is empty.")
        if len(picture) > self._max_upload_bytes:
            raise too_large(self._max_upload_bytes)
        count = self._k(k if isinstance(k, str) else None, len(self._gallery.paths))
        start = time.perf_counter()
        find = partial(self._search.nearest, picture, count)
        hits = await to_thread.run_sync(find, limiter=self._searching)
        return self._hits(hits, start, query=None)

    async def _read(
        self, row: int, read: Callable[[], Result], limiter: CapacityLimiter
    ) -> Result:
        path = self._gallery.paths[row]
        try:
            return await to_thread.run_sync(read, limiter=limiter)
        except FileNotFoundError as error:
            raise HTTPException(404, f"The file {path!r} is gone.") from error
        except UnreadableImageError as error:
            raise HTTPException(404, f"The file {path!r} is broken.") from error

    def _row(self, request: Request) -> int:
        text = request.path_params["row"]
        last = len(self._gallery.paths) - 1
        # A longer number is no row of any gallery, and slow to read.
        is_number = text.isascii() and text.isdigit() and len(text) < 19
        if not is_number or int(text) > last:
            raise HTTPException(
                404,
                f"There is no image {text[:40]!r} in the gallery, only 0 to {last}.",
            )
        return int(text)

    def _k(self, text: str | None, largest: int) -> int:
        largest = min(MAX_K, largest)
        if text is None:
            return min(DEFAULT_K, largest)
        return whole_number(text, "k", 1, largest)

    def _item(self, row: int) -> dict[str, object]:
        return {
            "row": row,
            "id": self._gallery.paths[row],
            "class": self._gallery.class_of(row),
            "url": f"images/{row}?v={self._run}",
        }

    def _hits(
        self, hits: Sequence[Hit], start: float, query: dict[str, object] | None
    ) -> Response:
        found = [
            self._item(hit.row)
            | {"similarity": hit.similarity}
            | ({} if hit.is_match is None else {"match": hit.is_match})
            for hit in hits
        ]
        seconds = round(time.perf_counter() - start, 4)
        reply = {"query": query, "hits": found, "seconds": seconds}
        known = self._gallery.calibration
        if known is not None:
            # Hits come nearest first: where the first is no match, none is.
            is_match = any(hit.is_match for hit in hits[:1])
            reply |= {"match": is_match, "threshold": known.threshold}
        return JSONResponse(reply)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise TypeError(f"An HTTPException is expected, not {type(error).__name__}.")
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _error(status: int, request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status)


async def _internal_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The search failed; its log says why."}, 500)


def run(
    index_folder: str | PathLike[str],
    endpoint_url: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    images: str | PathLike[str] | None = None,
    credentials: Credentials | None = None,
) -> None:
    """Serve the search page until the process is interrupted.

    Args:
        index_folder: Folder that `python -m serving index` wrote.
        endpoint_url: Address of the model, such as
            `http://127.0.0.1:8501/v1/models/emoji`.
        host: Address to listen at. Anything else than the loopback address shows the
            gallery to the network: the page asks for no password.
        port: Port to listen at; 0 takes a free one.
        images: Folder of the pictures, where it is no longer the one indexed.
        credentials: What the endpoint asks of its clients.

    Raises:
        FileNotFoundError, ValueError: The index is missing, damaged or of another
            model.
        EndpointError: The endpoint did not answer.
        OSError: The port is taken.
    """
    with (
        open_socket(host, port) as listener,
        open_search(
            index_folder, endpoint_url, images=images, credentials=credentials
        ) as search,
    ):
        app = create_app(search)
        print(f"Image search: {url_of(listener)}", flush=True)
        serve([(app, listener)])
