"""The calls of the search service, each a handler of HTTP.

Pictures are named by their ids; no path of a request reaches the file system.
"""

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serving.search.app.fetching import Fetcher, FetchError
from serving.search.app.replies import Replies
from serving.search.app.requests import (
    DEFAULT_K,
    MAX_K,
    Asked,
    RequestReader,
    where_of,
)
from serving.search.app.thumbnails import MEDIA_TYPE, Thumbnails
from serving.search.app.web import whole_number
from serving.search.gallery.image_search import ImageSearch
from serving.search.gallery.items import Hit, Item
from serving.search.gallery.stored_images import PICTURE
from serving.web.bounded_work import TIMEOUT_SECONDS, BoundedWork, Room
from tfdml.images import UnreadableImageError
from tfdml.index import Where

# A large picture takes some hundred megabytes while it is decoded.
_THREADS = 4
_WAITING = 64
_MOST_FETCHED = 8  # pictures at addresses, at one time
_FOREVER = "private, max-age=31536000, immutable"

Result = TypeVar("Result")


class SearchService:
    """Answers the calls of one gallery, and of another beside it.

    Args:
        searches: The galleries by name; the first is the main one.
        reader: Reads the requests.
        can_edit: Whether the main gallery may be changed.
        fetcher: Fetches pictures; None where addresses are not taken.
        timeout_seconds: How long a request waits for its result, above 0.

    Attributes:
        main: The search over the main gallery.
        replies: Describes pictures.
        embedding: Does what asks the endpoint.
        searching: Does what the index alone answers, so that an endpoint which hangs
            does not hold that up.
    """

    def __init__(
        self,
        searches: dict[str, ImageSearch],
        reader: RequestReader,
        *,
        can_edit: bool = False,
        fetcher: Fetcher | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._searches = searches
        self.main = next(iter(searches.values()))
        self._reader = reader
        self._can_edit = can_edit
        self._fetcher = fetcher
        self.replies = Replies(self.main)
        self._thumbnails = Thumbnails()
        self._large = Thumbnails(size=1024, keep_bytes=16_000_000)
        options = (_THREADS, _WAITING, timeout_seconds)
        self.embedding = BoundedWork("embed", *options)
        self.searching = BoundedWork("search", *options)
        self._fetching = Room(_MOST_FETCHED)
        self._drawing = BoundedWork("draw", *options)

    def close(self) -> None:
        """Begin nothing any more."""
        self._reader.close()
        self.embedding.close()
        self.searching.close()
        self._drawing.close()

    # The gallery

    async def info(self, request: Request) -> Response:
        """Tell of the galleries and of what may be asked for."""

        def describe() -> list[dict[str, Any]]:
            return [self.replies.index(each) for each in self._searches.values()]

        return JSONResponse(
            {
                "indexes": await self._drawing.run(describe),
                "max_k": MAX_K,
                "max_upload_bytes": self._reader.max_upload_bytes,
                "can_edit": self._can_edit,
                "can_fetch": self._fetcher is not None,
            }
        )

    async def stats(self, request: Request) -> Response:
        """Tell what an index is and holds."""
        describe = partial(self.replies.stats, self.search_of(request))
        return JSONResponse(await self._drawing.run(describe))

    async def images(self, request: Request) -> Response:
        """List pictures in the order of the gallery."""
        offset = whole_number(request.query_params.get("offset", "0"), "offset", 0)
        return await self._listed(
            request, lambda ids, limit: ids[offset : offset + limit].tolist()
        )

    async def sample(self, request: Request) -> Response:
        """List pictures at random."""
        seed = whole_number(request.query_params.get("seed", "0"), "seed", 0)

        def drawn(ids: Any, limit: int) -> list[str]:
            generator = random.Random(seed)  # noqa: S311 (no secret depends on it)
            rows = generator.sample(range(len(ids)), min(limit, len(ids)))
            return ids[rows].tolist() if rows else []

        return await self._listed(request, drawn)

    async def _listed(
        self, request: Request, choose: Callable[[Any, int], list[str]]
    ) -> Response:
        search = self.search_of(request)
        limit = whole_number(request.query_params.get("limit", "24"), "limit", 1, 100)
        where = where_of(request.query_params.get("where"))
        _check_names(search, where)

        def read() -> dict[str, Any]:
            try:
                ids = search.listing.ids(where)
            except ValueError as error:
                raise HTTPException(400, str(error)) from error
            items = search.items(choose(ids, limit))
            images = [self.replies.item(search, item) for item in items]
            return {"total": len(ids), "images": images}

        return JSONResponse(await self._drawing.run(read))

    async def thumbnail(self, request: Request) -> Response:
        """Show a picture, small."""
        return await self._shown(request, self._thumbnails)

    async def picture(self, request: Request) -> Response:
        """Show a picture, large enough to cut a part out of it."""
        return await self._shown(request, self._large)

    async def _shown(self, request: Request, thumbnails: Thumbnails) -> Response:
        search = self.search_of(request)
        item = self.item_of(search, request)
        tag = self.replies.tag(item)

        def draw() -> bytes:
            key = (search.name, item.id, tag)
            return thumbnails.get(key, search.file(item))

        content = await self._read(item.id, self._drawing, draw)
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        is_pinned = request.query_params.get("v") == tag
        headers = {"etag": etag, "cache-control": _FOREVER if is_pinned else "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=MEDIA_TYPE, headers=headers)

    # Searching

    async def similar(self, request: Request) -> Response:
        """Find the pictures nearest to one of the gallery."""
        query = request.query_params
        k = whole_number(query.get("k", str(DEFAULT_K)), "k", 1, MAX_K)
        asked = Asked(
            id=_id(request),
            k=k,
            index=query.get("index"),
            where=where_of(query.get("where")),
        )
        return await self._found(asked)

    async def nearest(self, request: Request) -> Response:
        """Find the pictures nearest to a picture, an embedding or a picture's id."""
        return await self._found(await self._reader.search(request))

    async def _found(self, asked: Asked) -> Response:
        search = self._named(asked.index)
        _check_names(search, asked.where)
        start = time.perf_counter()
        query = None
        find: Callable[..., Sequence[Hit]]
        if asked.id is not None and asked.id in search.index:
            query = self.replies.item(search, self.known(search, asked.id))
            work = self.searching if asked.crop is None else self.embedding
            find = partial(search.similar, asked.id, asked.k, crop=asked.crop)
            hits = await self._read(asked.id, work, _refusing(find, asked))
        elif asked.id is not None:
            other = self._other(search, asked.id)
            query = self.replies.item(other, self.known(other, asked.id))
            find = partial(_as_in, other, search, asked)
            hits = await self._read(asked.id, self.embedding, _refusing(find, asked))
        elif asked.embedding is not None:
            _check_length(asked.embedding, search.index.dimension)
            find = partial(search.nearest_to, asked.embedding, asked.k)
            hits = await self.searching.run(_refusing(find, asked))
        elif asked.url is not None:
            # What was fetched is in memory until it has been searched with.
            with self._fetching.place():
                picture = await self._fetched(asked.url)
                hits = await self._nearest(search, picture, asked)
        else:
            hits = await self._nearest(search, asked.picture or b"", asked)
        return JSONResponse(self.replies.hits(search, hits, query, start))

    async def _nearest(
        self, search: ImageSearch, picture: bytes, asked: Asked
    ) -> Sequence[Hit]:
        find = partial(search.nearest, picture, asked.k, crop=asked.crop)
        return await self.embedding.run(_refusing(find, asked))

    def _other(self, search: ImageSearch, id_: str) -> ImageSearch:
        """Return the other gallery, where only that has a picture."""
        for other in self._searches.values():
            if other is not search and id_ in other.index:
                return other
        raise missing(id_)

    async def _fetched(self, url: str) -> bytes:
        if self._fetcher is None:
            raise HTTPException(
                403, "This service fetches no pictures: start it with `--allow-url`."
            )
        try:
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
                f"There is no index {name[:40]!r}, only "
                f"{', '.join(map(repr, self._searches))}.",
            )
        return self._searches[name]

    def item_of(self, search: ImageSearch, request: Request) -> Item:
        """Return the picture that the parameter `id` names.

        Raises:
            HTTPException: 400, there is no such parameter; 404, no such picture.
        """
        return self.known(search, _id(request))

    def known(self, search: ImageSearch, id_: str) -> Item:
        """Return a picture by its id.

        Raises:
            HTTPException: 404, there is none.
        """
        try:
            return search.item(id_)
        except KeyError as error:
            raise missing(id_) from error

    async def _read(
        self, id_: str, work: BoundedWork, read: Callable[[], Result]
    ) -> Result:
        try:
            return await work.run(read)
        except KeyError as error:
            raise missing(id_) from error
        except FileNotFoundError as error:
            raise HTTPException(404, f"The file of {id_!r} is gone.") from error
        except UnreadableImageError as error:
            raise HTTPException(404, f"The file of {id_!r} is broken.") from error


def _as_in(
    other: ImageSearch,
    search: ImageSearch,
    asked: Asked,
    *,
    where: Where | None,
    exclude: Sequence[str],
) -> Sequence[Hit]:
    """Find the pictures nearest to one that only another gallery has."""
    item = other.item(str(asked.id))
    # As when it was indexed: of any format, unlike what strangers send.
    embedding = search.embed(other.file(item).read_bytes(), asked.crop)
    return search.nearest_to(embedding, asked.k, where=where, exclude=exclude)


def _refusing(
    find: Callable[..., Sequence[Hit]], asked: Asked
) -> Callable[[], Sequence[Hit]]:
    """Make wrong arguments of a search the errors that they are of a request."""

    def found() -> Sequence[Hit]:
        try:
            return find(where=asked.where, exclude=asked.exclude)
        except UnreadableImageError:
            raise
        except ValueError as error:
            raise HTTPException(400, str(error)) from error

    return found


def _id(request: Request) -> str:
    id_ = request.query_params.get("id")
    if not id_:
        raise HTTPException(400, "Name the picture by the parameter `id`.")
    return id_


def _check_names(search: ImageSearch, where: Where | None) -> None:
    """Refuse a filter on what pictures are not shown to have."""
    if not where:
        return
    names = set(search.index.stats().attributes) - {PICTURE}
    unknown = sorted(set(where) - names)
    if unknown:
        raise HTTPException(
            400,
            f"`where` must name attributes of the index, {sorted(names)}. "
            f"Received: {unknown[0][:100]!r}.",
        )


def _check_length(embedding: Sequence[float], dimension: int) -> None:
    if len(embedding) != dimension:
        raise HTTPException(
            400,
            f"`embedding` must have {dimension} numbers. Received: {len(embedding)}.",
        )


def missing(id_: str) -> HTTPException:
    """Make the error for an id that the gallery has not."""
    return HTTPException(404, f"There is no image {id_[:100]!r} in the gallery.")
