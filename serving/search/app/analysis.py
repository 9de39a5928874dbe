"""Answer the calls about a whole gallery: near-duplicates, and the map."""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfdml.index import Index, SearchResult, Where, near_duplicates
from tfdml.messages import shown

from ...web.bounded_work import BoundedWork
from ..gallery.image_search import ImageSearch
from ..gallery.pair import Pair
from .query_fields import whole_number
from .service import SearchService

if TYPE_CHECKING:
    from ..gallery.map import GalleryMap
    from ..gallery.map_layout import MapLayout


_THRESHOLD = 0.95
_LEAST_THRESHOLD = 0.5  # below it, nearly all pairs of a gallery are found
_SECONDS = 300.0
_MOST_POINTS = 2_000
_MOST_IN_GROUP = 100


@dataclass(frozen=True)
class _Found:
    """The near-duplicates of a gallery, without the pairs themselves."""

    pair: Pair
    threshold: float
    changes: int
    groups: list[tuple[Any, ...]]
    least_scores: list[float]
    pairs: int
    compared: int
    complete: bool


class GalleryAnalysis:
    """Answer the calls that look at all images of a gallery.

    Args:
        service: Knows the galleries.
    """

    def __init__(self, service: SearchService) -> None:
        self._search_of = service.search_of
        self._replies = service.replies
        # One at a time: each is a search with all images of the gallery.
        self._comparing = BoundedWork("compare", 1, 4, _SECONDS)
        self._drawing = BoundedWork("map", 2, 16, _SECONDS)
        self._lock = threading.Lock()
        self._stops = threading.Event()
        self._maps: dict[tuple[str, Pair], GalleryMap] = {}
        self._found: dict[str, _Found] = {}

    def close(self) -> None:
        """Begin nothing any more, end a comparison, and wait for unfinished maps."""
        self._stops.set()
        self._comparing.close()
        self._drawing.close()
        with self._lock:
            for each in self._maps.values():
                each.close()

    def replaced(self, search: ImageSearch) -> None:
        """Forget the map of the search that another one has replaced."""
        with self._lock:
            former = [
                key
                for key in self._maps
                if key[0] == search.name and key[1] != search.pair
            ]
            closed = [self._maps.pop(key) for key in former]
        for each in closed:
            each.close()

    async def duplicates(self, request: Request) -> Response:
        """Return the groups of images that are nearly the same."""
        search = self._search_of(request)
        threshold = _threshold(request.query_params.get("threshold"))
        limit = whole_number(request.query_params.get("limit", "24"), "limit", 1, 100)

        def compare() -> dict[str, Any]:
            found = self._duplicates(search, threshold)
            shown = zip(found.groups[:limit], found.least_scores[:limit], strict=True)
            groups: list[dict[str, Any]] = []
            for ids, least in shown:
                items = search.items([str(id_) for id_ in ids[:_MOST_IN_GROUP]])
                images = [self._replies.item(search, item) for item in items]
                groups.append(
                    {"similarity": least, "count": len(ids), "images": images}
                )
            return {
                "threshold": threshold,
                "pairs": found.pairs,
                "groups": [group for group in groups if len(group["images"]) > 1],
                "group_count": len(found.groups),
                "images": found.compared,
                "complete": found.complete,
            }

        return JSONResponse(await self._comparing.run(compare))

    def _duplicates(self, search: ImageSearch, threshold: float) -> _Found:
        """Compare, or return what the same comparison returned before."""
        changes = search.listing.changes
        known = self._found.get(search.name)
        wanted = search.pair, threshold, changes
        if known is None or (known.pair, known.threshold, known.changes) != wanted:
            index = _Stoppable(search.index, self._stops)
            result = near_duplicates(index, threshold=threshold)
            # Not the pairs themselves: of a large gallery, they are hundreds of
            # megabytes.
            known = self._found[search.name] = _Found(
                *wanted,
                result.groups,
                result.least_scores,
                len(result.pairs.scores),
                result.compared,
                result.complete,
            )
        return known

    async def map(self, request: Request) -> Response:
        """Return where t-SNE places the images; 202 while there is no map yet."""
        search = self._search_of(request)
        text = request.query_params.get("limit", str(_MOST_POINTS))
        limit = whole_number(text, "limit", 1, _MOST_POINTS)

        def draw() -> dict[str, Any] | None:
            layout = self._layout(search)
            if layout is None:
                return None
            places = {str(point.id): point for point in layout.points[:limit]}
            points = [
                self._replies.item(search, item)
                | {
                    "x": places[item.id].x,
                    "y": places[item.id].y,
                    "cluster": places[item.id].cluster,
                }
                for item in search.items(list(places))
            ]
            return {
                "method": "t-SNE",
                "points": points,
                "of": layout.of,
                "current": layout.is_current,
            }

        reply = await self._drawing.run(draw)
        if reply is None:
            headers = {"retry-after": "1"}
            return JSONResponse({"state": "computing"}, 202, headers)
        return JSONResponse(reply)

    def _layout(self, search: ImageSearch) -> "MapLayout | None":
        # Loads Matplotlib and scikit-learn.
        from ..gallery.map import GalleryMap, MapError

        with self._lock:
            key = search.name, search.pair
            if key not in self._maps:
                folder = search.index.stats().details["folder"]
                self._maps[key] = GalleryMap(search.index, folder)
            drawn = self._maps[key]
        try:
            return drawn.get()
        except MapError as error:
            raise HTTPException(500, str(error)) from error


class _Stoppable:
    """An index that refuses searches once the service stops."""

    def __init__(self, index: Index, stops: threading.Event) -> None:
        self._index = index
        self._stops = stops
        self.get, self.count, self.stats = index.get, index.count, index.stats

    @property
    def ids(self) -> NDArray[Any]:
        return self._index.ids

    def search(
        self, queries: ArrayLike, k: int = 10, *, where: Where | None = None
    ) -> SearchResult:
        if self._stops.is_set():
            raise HTTPException(503, "The service is stopping.", {"retry-after": "1"})
        return self._index.search(queries, k, where=where)


def _threshold(text: str | None) -> float:
    try:
        threshold = _THRESHOLD if text is None else float(text)
    except ValueError:
        threshold = 2.0
    if not _LEAST_THRESHOLD <= threshold <= 1:
        raise HTTPException(
            400,
            f"`threshold` must be a number from {_LEAST_THRESHOLD:g} to 1: below it, "
            f"nearly all images would count as alike. Received: {shown(text)}.",
        )
    return threshold
