"""Answer the call that packs hits and their images into an archive."""

import csv
import functools
import io
import math
import re
import zipfile
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tfdml.images import UnreadableImageError
from tfdml.messages import shown

from ...web.body import ARRIVAL_SECONDS, BodyReader
from ...web.bounded_work import Room
from ..gallery.image_search import ImageSearch
from ..gallery.items import Item
from .errors import refuse
from .query_fields import MAX_K
from .service import SearchService
from .strict_json import json_object
from .thumbnails import Thumbnails

_MOST_BYTES = 200_000  # of a request
_AT_ONCE = 2
_SIDE = 1024  # pixels
_COLUMNS = ("rank", "id", "class", "similarity", "file")


class GalleryExport:
    """Pack images of a gallery into zip archives.

    Args:
        service: Knows the galleries.
    """

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._bodies = BodyReader(_MOST_BYTES, 8 * _MOST_BYTES, ARRIVAL_SECONDS)
        self._room = Room(_AT_ONCE)
        decoding = service.main.decoding
        self._images = Thumbnails(size=_SIDE, keep_bytes=0, decoding=decoding)

    async def archive(self, request: Request) -> Response:
        """Return the hits of a request as a table, with their images beside it."""
        try:
            async with self._bodies.read(request) as body:
                values = json_object("The body", bytes(body))
        except ClientDisconnect as error:
            raise HTTPException(400, "The request was cut off.") from error
        hits = _hits_of(values)
        search = self._service.search_of(request)
        with self._room.place():
            content = await self._packed(search, hits)
        headers = {"content-disposition": 'attachment; filename="hits.zip"'}
        return Response(content, media_type="application/zip", headers=headers)

    async def _packed(
        self, search: ImageSearch, hits: list[tuple[str, float | None]]
    ) -> bytes:
        items = {item.id: item for item in search.items([id_ for id_, _ in hits])}
        packed = io.BytesIO()
        table = io.StringIO()
        lines = csv.writer(table)
        lines.writerow(_COLUMNS)
        # The images are JPEGs, which do not get smaller.
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for rank, (id_, similarity) in enumerate(hits, 1):
                item = items.get(id_)
                name = f"images/{rank:03}_{_file_name(id_)}.jpg"
                content = None
                if item is not None:
                    # One by one, so that others get their turn.
                    image = functools.partial(self._image, search, item)
                    content = await self._service.drawing.run(image)
                if content is not None:
                    archive.writestr(name, content)
                lines.writerow(
                    (
                        rank,
                        id_,
                        "" if item is None else item.class_name,
                        "" if similarity is None else similarity,
                        "" if content is None else name,
                    )
                )
            archive.writestr("hits.csv", table.getvalue())
        return packed.getvalue()

    def _image(self, search: ImageSearch, item: Item) -> bytes | None:
        """Return an image as JPEG; None if it is gone or broken."""
        try:
            return self._images.get(item.id, search.file(item))
        except (FileNotFoundError, UnreadableImageError):
            return None


def _hits_of(values: dict[str, Any]) -> list[tuple[str, float | None]]:
    unknown = set(values) - {"hits"}
    if unknown:
        refuse(f"The body must not have {shown(min(unknown))}.")
    hits = values.get("hits")
    if not isinstance(hits, list) or not 1 <= len(hits) <= MAX_K:
        refuse(f"`hits` must be a list of 1 to {MAX_K} hits.")
    return [_hit_of(hit) for hit in hits]


def _hit_of(hit: Any) -> tuple[str, float | None]:
    if not isinstance(hit, dict) or not set(hit) <= {"id", "similarity"}:
        refuse("Each of `hits` must have an `id` and may have a `similarity`.")
    id_, similarity = hit.get("id"), hit.get("similarity")
    if not isinstance(id_, str) or not id_ or "\0" in id_:
        refuse("The `id` of each of `hits` must be a string.")
    is_number = isinstance(similarity, int | float) and not isinstance(similarity, bool)
    if similarity is None or (is_number and math.isfinite(similarity)):
        return id_, similarity
    refuse("The `similarity` of each of `hits` must be a number.")


def _file_name(id_: str) -> str:
    """Return an id as the name of a file on any system, without its suffix."""
    stem = re.sub(r"\.[A-Za-z0-9]{1,5}$", "", id_)
    return re.sub(r"[^\w-]+", "_", stem)[-80:].strip("_") or "image"
