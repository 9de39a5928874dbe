"""Answer the calls of the search service that show the gallery."""

import hashlib
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .errors import errors_of_image, errors_of_values
from .metrics import SearchMetrics
from .query_fields import where_of, whole_number
from .service import SearchService, check_names
from .thumbnails import MEDIA_TYPE, Thumbnails

_FOREVER = "private, max-age=31536000, immutable"


class GalleryBrowsing:
    """List the images of a gallery, and show them.

    Args:
        service: Knows the galleries.
        metrics: Counts the thumbnails; None for none.
    """

    def __init__(
        self, service: SearchService, metrics: SearchMetrics | None = None
    ) -> None:
        self._service = service
        self._replies = service.replies
        self._drawing = service.drawing

        def decoding(image: bytes | Path) -> AbstractContextManager[None]:
            return service.main.decoding(image)  # all galleries share the memory

        self._thumbnails = Thumbnails(decoding=decoding)
        if metrics is not None:
            self._thumbnails.asked = metrics.thumbnail
        self._large = Thumbnails(size=1024, keep_bytes=16_000_000, decoding=decoding)

    async def stats(self, request: Request) -> Response:
        """Describe an index and its content."""
        search = self._service.search_of(request)
        stats = await self._drawing.run(lambda: self._replies.stats(search))
        return JSONResponse(stats)

    async def images(self, request: Request) -> Response:
        """List images in the order of the gallery."""
        offset = whole_number(request.query_params.get("offset", "0"), "offset", 0)
        return await self._listed(
            request, lambda ids, limit: ids[offset : offset + limit].tolist()
        )

    async def sample(self, request: Request) -> Response:
        """List images at random."""
        seed = whole_number(request.query_params.get("seed", "0"), "seed", 0)

        def drawn(ids: Any, limit: int) -> list[str]:
            generator = random.Random(seed)  # noqa: S311 (no secret depends on it)
            rows = generator.sample(range(len(ids)), min(limit, len(ids)))
            return ids[rows].tolist() if rows else []

        return await self._listed(request, drawn)

    async def _listed(
        self, request: Request, choose: Callable[[Any, int], list[str]]
    ) -> Response:
        search = self._service.search_of(request)
        limit = whole_number(request.query_params.get("limit", "24"), "limit", 1, 100)
        where = where_of(request.query_params.get("where"))
        check_names(search, where)

        def read() -> dict[str, Any]:
            with errors_of_values():
                ids = search.listing.ids(where)
            items = search.items(choose(ids, limit))
            images = [self._replies.item(search, item) for item in items]
            return {"total": len(ids), "images": images}

        return JSONResponse(await self._drawing.run(read))

    async def thumbnail(self, request: Request) -> Response:
        """Return the thumbnail of an image."""
        return await self._shown(request, self._thumbnails)

    async def image(self, request: Request) -> Response:
        """Return an image, large enough to choose a region of it."""
        return await self._shown(request, self._large)

    async def _shown(self, request: Request, thumbnails: Thumbnails) -> Response:
        search = self._service.search_of(request)
        item = self._service.item_of(search, request)
        tag = self._replies.tag(item)

        def draw() -> bytes:
            key = (search.name, item.id, tag)
            return thumbnails.get(key, search.file(item))

        with errors_of_image(item.id):
            content = await self._drawing.run(draw)
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        is_pinned = request.query_params.get("v") == tag
        headers = {"etag": etag, "cache-control": _FOREVER if is_pinned else "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=MEDIA_TYPE, headers=headers)
