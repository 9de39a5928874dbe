"""Answer the call that tells which parts of a query and of a hit make them alike."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfdml.images import read_image

from ...storage.remote_image import content_of
from ...web.bounded_work import Room
from ..gallery.image_search import ImageSearch
from ..gallery.uploads import Crop, check_upload
from .errors import errors_of_image
from .requests import RequestReader
from .service import SearchService

_CELLS = 7  # a side
_COVERED = 2  # cells a side that are covered at once
_AT_ONCE = 2


@dataclass(frozen=True)
class _Map:
    """How much the similarity falls where an image is covered, `[cells, cells]`."""

    similarity: float
    falls: NDArray[np.float64]


class Reasons:
    """Tell why an image is alike, by covering parts of it.

    Works with every model, also behind TensorFlow Serving: it embeds images, as a
    search does.

    Args:
        service: Knows the galleries.
        reader: Reads the requests.
    """

    def __init__(self, service: SearchService, reader: RequestReader) -> None:
        self._service = service
        self._reader = reader
        self._room = Room(_AT_ONCE)

    async def why(self, request: Request) -> Response:
        """Return two maps: of the query for the hit, and of the hit for the query."""
        search = self._service.search_of(request)
        content, crop, fields = await self._reader.pair(request)
        explain = functools.partial(self._explained, search, content, fields, crop)
        with self._room.place():
            query, hit = await self._service.embedding.run(explain)
        return JSONResponse(
            {
                "similarity": query.similarity,
                "query": query.falls.tolist(),
                "hit": hit.falls.tolist(),
            }
        )

    def _explained(
        self,
        search: ImageSearch,
        content: bytes | None,
        fields: dict[str, str],
        crop: Crop | None,
    ) -> tuple[_Map, _Map]:
        if content is None:
            query = _of_gallery(search, fields["id"], crop)
        else:
            check_upload(content, search.max_pixels)
            query = _pixels_of(search, content, crop)
        hit = _of_gallery(search, fields["hit"], None)
        to_query, to_hit = _embedded(search, [query, hit])
        return _map_of(search, query, to_hit), _map_of(search, hit, to_query)


def _of_gallery(search: ImageSearch, id_: str, crop: Crop | None) -> NDArray[np.uint8]:
    with errors_of_image(id_):
        return _pixels_of(search, search.file(search.item(id_)), crop)


def _pixels_of(search: ImageSearch, image: Any, crop: Crop | None) -> NDArray[np.uint8]:
    """Return what the model sees of an image, about as small as it sees it."""
    # Those of the gallery are the owner's, who allowed their size.
    most = search.max_pixels if isinstance(image, bytes) else None
    image = content_of(image)
    with search.decoding(image):
        pixels = read_image(image, max_pixels=most)
        if crop is not None:
            pixels = crop.cut(pixels)
        view = search.client.metadata().view
        if view is not None:
            pixels = view.reduced(pixels)
        return np.array(pixels)


def _embedded(
    search: ImageSearch, images: list[NDArray[np.uint8]]
) -> NDArray[np.float64]:
    rows = np.asarray(search.client.embed(images), np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _map_of(
    search: ImageSearch, image: NDArray[np.uint8], other: NDArray[np.float64]
) -> _Map:
    """Cover each part of an image, and measure how far the similarity falls."""
    starts = range(1 - _COVERED, _CELLS)
    places = [(row, column) for row in starts for column in starts]
    covered = [_covered(image, row, column) for row, column in places]
    scores = _embedded(search, [image, *covered]) @ other
    sums = np.zeros((_CELLS, _CELLS))
    counts = np.zeros((_CELLS, _CELLS))
    for (row, column), score in zip(places, scores[1:], strict=True):
        part = np.s_[max(row, 0) : row + _COVERED, max(column, 0) : column + _COVERED]
        sums[part] += scores[0] - score
        counts[part] += 1
    return _Map(float(scores[0]), sums / counts)


def _covered(image: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    """Fill some cells with the mean color of their border.

    Where an image is of one color, nothing changes.
    """
    top, bottom = _edges(row, image.shape[0])
    left, right = _edges(column, image.shape[1])
    made = image.copy()
    if bottom > top and right > left:
        part = made[top:bottom, left:right]
        border = np.concatenate([part[0], part[-1], part[:, 0], part[:, -1]])
        part[:] = np.rint(border.mean(axis=0)).astype(np.uint8)
    return made


def _edges(cell: int, pixels: int) -> tuple[int, int]:
    first, last = max(cell, 0), min(cell + _COVERED, _CELLS)
    return round(first * pixels / _CELLS), round(last * pixels / _CELLS)
