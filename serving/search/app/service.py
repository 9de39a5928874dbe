"""Answer the calls of the search service that search.

Images are named by their ids; no path of a request reaches the file system.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfdml.index import Where
from tfdml.messages import cut, shown

from ...web.bounded_work import TIMEOUT_SECONDS, BoundedWork, Room
from ..gallery.image_search import ImageSearch
from ..gallery.items import Item
from ..gallery.query import (
    Address,
    Embedding,
    Examples,
    File,
    Member,
    Query,
    Source,
    Upload,
)
from ..gallery.stored_images import STORED_IMAGE
from ..gallery.uploads import Crop
from .errors import (
    errors_of_examples,
    errors_of_image,
    errors_of_values,
    missing,
    refuse,
)
from .examples import MOST_EXAMPLES
from .fetching import Fetcher, FetchError
from .metrics import SearchMetrics
from .query_fields import DEFAULT_K, MAX_EXPAND, MAX_K, where_of, whole_number
from .replies import Replies
from .requests import RequestReader


@dataclass(frozen=True)
class Limits:
    """How much the service does at once.

    Args:
        threads: Requests of one kind that run at once. How much memory their images
            take is bounded by `ImageSearch.memory`.
        waiting: How many more of them wait.
        fetched: Images that are fetched from addresses at once.
        piece_bytes: See `RequestReader`.
    """

    threads: int = 4
    waiting: int = 64
    fetched: int = 8
    piece_bytes: int = 2**18


class SearchService:
    """Answer the calls of one gallery, and of another beside it.

    Args:
        searches: The galleries by name; the first is the main one.
        reader: Reads the requests.
        can_edit: Whether the main gallery may be changed.
        can_rate: Whether users may say that a hit is right or wrong.
        fetcher: Fetches images; None if addresses are not accepted.
        timeout_seconds: How long a request waits for its result, above 0.
        limits: How much is done at once.
        metrics: Counts the answers; None for none.

    Attributes:
        replies: Describes images.
        embedding: Runs what needs the endpoint.
        searching: Runs what the index alone answers, so that an endpoint that hangs
            does not block it.
        drawing: Runs what shows the gallery.
    """

    def __init__(
        self,
        searches: dict[str, ImageSearch],
        reader: RequestReader,
        *,
        can_edit: bool = False,
        can_rate: bool = False,
        fetcher: Fetcher | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        limits: Limits | None = None,
        metrics: SearchMetrics | None = None,
    ) -> None:
        limits = Limits() if limits is None else limits
        self._metrics = metrics
        self._searches = searches
        self._reader = reader
        self._can_edit = can_edit
        self._can_rate = can_rate
        self._fetcher = fetcher
        self.replies = Replies(self.main.name)
        bounds = (limits.threads, limits.waiting, timeout_seconds)
        self.embedding = BoundedWork("embed", *bounds)
        self.searching = BoundedWork("search", *bounds)
        self._fetching = Room(limits.fetched)
        self.drawing = BoundedWork("draw", *bounds)

    @property
    def main(self) -> ImageSearch:
        """The search over the main gallery."""
        return next(iter(self._searches.values()))

    def replace(self, search: ImageSearch) -> None:
        """Let requests that begin from now on use another search of the same name.

        Requests take their search once, when they begin: model and index of an answer
        belong together.
        """
        self._searches[search.name] = search

    def close(self) -> None:
        """Begin nothing any more."""
        self._reader.close()
        self.embedding.close()
        self.searching.close()
        self.drawing.close()

    async def info(self, request: Request) -> Response:
        """Describe the galleries, and what may be asked for."""

        def describe() -> list[dict[str, Any]]:
            return [self.replies.index(each) for each in self._searches.values()]

        return JSONResponse(
            {
                "indexes": await self.drawing.run(describe),
                "max_k": MAX_K,
                "max_examples": MOST_EXAMPLES,
                "max_upload_bytes": self._reader.max_upload_bytes,
                "can_edit": self._can_edit,
                "can_fetch": self._fetcher is not None,
                "can_rate": self._can_rate,
            }
        )

    # Searching

    async def similar(self, request: Request) -> Response:
        """Find the images nearest to one of the gallery."""
        given = request.query_params
        k = whole_number(given.get("k", str(DEFAULT_K)), "k", 1, MAX_K)
        expand = whole_number(given.get("expand", "0"), "expand", 0, MAX_EXPAND)
        where = where_of(given.get("where"))
        query = Query(Member(_id(request)), k, where, expand=expand)
        return await self._answer(query, given.get("index"))

    async def nearest(self, request: Request) -> Response:
        """Find the images nearest to an image, an embedding or one of the gallery."""
        return await self._answer(*await self._reader.search(request))

    async def _answer(self, query: Query, index: str | None) -> Response:
        search = self._named(index)
        check_names(search, query.where)
        start = time.perf_counter()
        match query.source:
            case Examples():
                reply = await self._like_examples(search, query, start)
            case Address(url):
                # What was fetched is in memory until it has been searched with.
                with self._fetching.place():
                    query = replace(query, source=Upload(await self._fetched(url)))
                    reply = await self._hits(search, query, None, start)
            case Member(id_):
                with errors_of_image(id_):
                    reply = await self._similar(search, query, id_, start)
            case Embedding(values):
                _check_length("embedding", values, search)
                reply = await self._hits(search, query, None, start)
            case _:
                reply = await self._hits(search, query, None, start)
        return JSONResponse(reply)

    async def _similar(
        self, search: ImageSearch, query: Query, id_: str, start: float
    ) -> dict[str, Any]:
        """Search with an image that this or another gallery has."""
        source, shown = self._member(search, id_)
        return await self._hits(search, replace(query, source=source), shown, start)

    def _member(
        self, search: ImageSearch, id_: str
    ) -> tuple[Member | File, dict[str, Any]]:
        """Return an image of this or another gallery, and its description."""
        owners = (each for each in self._searches.values() if id_ in each.index)
        owner = search if id_ in search.index else next(owners, None)
        if owner is None:
            raise missing(id_)
        item = owner.item(id_)
        described = self.replies.item(owner, item)
        if owner is search:
            return Member(id_), described
        # Of any format, as when it was indexed, unlike an upload.
        return File(owner.file(item), shown(id_)), described

    async def _like_examples(
        self, search: ImageSearch, query: Query, start: float
    ) -> dict[str, Any]:
        """Search with several images at once, and away from others."""
        given = query.source
        if not isinstance(given, Examples):
            raise TypeError(f"`query` must have examples. Received: {shown(given)}.")
        sources: dict[str, list[Source]] = {}
        described: dict[str, list[dict[str, Any] | None]] = {}
        crop = query.crop
        for name, each in (
            ("queries", given.positives),
            ("negatives", given.negatives),
        ):
            sources[name], described[name] = [], []
            for place, source in enumerate(each):
                item = None
                match source:
                    case Embedding(values):
                        _check_length(f"{name}[{place}].embedding", values, search)
                    case Member(id_):
                        with errors_of_image(id_):
                            source, item = self._member(search, id_)
                    case Address(url):
                        region = crop if name == "queries" else None
                        source = await self._embedded(search, url, region)
                        crop = None if name == "queries" else crop
                sources[name].append(source)
                described[name].append(item)
        examples = replace(
            given, positives=sources["queries"], negatives=sources["negatives"]
        )
        query = replace(query, source=examples, crop=crop)
        first, *others = described["queries"]
        with errors_of_examples():
            reply = await self._hits(search, query, None if others else first, start)
        return reply | described

    async def _embedded(
        self, search: ImageSearch, url: str, crop: Crop | None
    ) -> Embedding:
        """Embed an image at an address, of which no more is kept in memory."""
        name = cut(url, 80)
        with self._fetching.place():
            try:
                content = await self._fetched(url)
            except HTTPException as error:
                text = f"{name}: {error.detail}"
                raise HTTPException(error.status_code, text, error.headers) from error
            row = await self.embedding.run(
                lambda: search.embedding_of(Upload(content, name), crop)
            )
        return Embedding(np.asarray(row).tolist())

    async def _hits(
        self,
        search: ImageSearch,
        query: Query,
        shown: dict[str, Any] | None,
        start: float,
    ) -> dict[str, Any]:
        work = self.embedding if query.needs_model else self.searching
        with errors_of_values():
            hits = await work.run(lambda: search.nearest(query))
        if self._metrics is not None:
            self._metrics.answered(search.name, hits)
        return self.replies.hits(search, query, hits, shown, start)

    async def _fetched(self, url: str) -> bytes:
        if self._fetcher is None:
            raise HTTPException(
                403, "This service fetches no images: start it with `--allow-url`."
            )
        try:
            with self.main.stage("fetch"):
                return await self._fetcher.fetch(url)
        except FetchError as error:
            raise HTTPException(400 if error.is_refused else 502, str(error)) from error

    # What is asked for

    def search_of(self, request: Request) -> ImageSearch:
        """Return the search that the parameter `index` names; without it, the main one.

        Raises:
            HTTPException: 404, there is no such index.
        """
        return self._named(request.query_params.get("index"))

    def _named(self, name: str | None) -> ImageSearch:
        if not name:
            return self.main
        if name not in self._searches:
            raise HTTPException(
                404,
                f"There is no index {shown(name)}, only "
                f"{', '.join(map(shown, self._searches))}.",
            )
        return self._searches[name]

    def item_of(self, search: ImageSearch, request: Request) -> Item:
        """Return the image that the parameter `id` names.

        Raises:
            HTTPException: 400, there is no such parameter; 404, no such image.
        """
        id_ = _id(request)
        with errors_of_image(id_):
            return search.item(id_)


def _check_length(name: str, values: Sequence[float], search: ImageSearch) -> None:
    index = search.index
    if len(values) not in (index.dimension, index.embedding_dimension):
        refuse(
            f"`{name}` must have {index.embedding_dimension} numbers. "
            f"Received: {len(values)}."
        )


def _id(request: Request) -> str:
    id_ = request.query_params.get("id")
    if not id_:
        refuse("Name the image with the parameter `id`.")
    return id_


def check_names(search: ImageSearch, where: Where | None) -> None:
    """Refuse a filter on attributes that are not shown.

    Raises:
        HTTPException: 400, the index has no such attribute.
    """
    if not where:
        return
    names = set(search.index.stats().attributes) - {STORED_IMAGE}
    unknown = sorted(set(where) - names)
    if unknown:
        refuse(
            f"`where` must name attributes of the index, {sorted(names)}. "
            f"Received: {shown(unknown[0])}."
        )
