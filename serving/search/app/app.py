"""Serve the search page: an HTTP API over `ImageSearch`, and the page that uses it.

    GET    /                        the page
    GET    /api/info                galleries, models, limits
    POST   /api/search              nearest to an image, an embedding or an id
    GET    /api/similar             nearest to an image of the gallery
    GET    /api/images              images in order
    GET    /api/images/sample       images at random
    POST   /api/export              hits and their images, in an archive
    POST   /api/why                 which parts make two images alike
    POST   /api/feedback            whether a hit is right or wrong
    POST   /api/images              add an image
    DELETE /api/images              remove an image
    GET    /api/stats               an index and its content
    GET    /api/duplicates          images that are nearly the same
    GET    /api/map                 a map of the gallery
    GET    /api/openapi.yaml        all of this in detail
    GET    /images, /pictures       an image, as a thumbnail and larger
    GET    /healthz, /readyz        whether the service runs, and can search
    GET    /metrics                 what it does, for Prometheus, if asked for

Every error is `{"error": "a sentence"}`.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from os import PathLike
from pathlib import Path

from anyio import to_thread
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from tfdml.messages import shown

from ...client import Credentials
from ...web.access import TokenAccess, is_loopback
from ...web.bounded_work import TIMEOUT_SECONDS
from ...web.image_memory import ImageMemory
from ...web.observer import RequestObserver
from ...web.sockets import open_socket, serve, url_of
from ...web.tls import SslConfig, ssl_context_for_uvicorn
from ...web.tracing import Tracing
from ..gallery.editing import GalleryEditor
from ..gallery.image_search import ImageSearch
from ..gallery.opening import open_search
from ..gallery.query_record import QueryRecorder
from .analysis import GalleryAnalysis
from .browsing import GalleryBrowsing
from .changes import GalleryChanges
from .errors import ERROR_HANDLERS
from .export import GalleryExport
from .feedback import GalleryFeedback
from .fetching import Fetcher
from .following import PairFollower
from .guard import Guard, Watch
from .health import Health
from .metrics import SearchMetrics, stages_of
from .page_files import SecurityHeaders, static_file
from .reach import Reach
from .reasons import Reasons
from .requests import RequestReader
from .routes import Handler, routes_of
from .service import Limits, SearchService

MAX_UPLOAD_BYTES = 20_000_000

_STATIC = Path(__file__).parents[1] / "static"
_DESCRIPTION = "/api/openapi.yaml"
_LIVE, _READY = "/healthz", "/readyz"
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Calls that look at the whole gallery.
_COSTLY = ("/api/duplicates", "/api/map")


def create_app(
    search: ImageSearch,
    *,
    compare: ImageSearch | None = None,
    follow: Mapping[str, Callable[[], ImageSearch]] | None = None,
    editable: bool = False,
    allow_url: bool = False,
    feedback: str | PathLike[str] | None = None,
    fetcher: Fetcher | None = None,
    access: TokenAccess | None = None,
    only_here: bool = False,
    reach: Reach | None = None,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
    timeout_seconds: float = TIMEOUT_SECONDS,
    with_metrics: bool = False,
    tracing: Tracing | None = None,
    recorder: QueryRecorder | None = None,
    limits: Limits | None = None,
    memory: ImageMemory | None = None,
) -> ASGIApp:
    """Create the application of the search page.

    Args:
        search: Search over the gallery to show.
        compare: Search over another gallery, or the same one with another model, to
            show beside it.
        follow: Opens what the folder of a search holds, by the name of the search:
            when the folder is switched to another model and index, so is the search.
            By default, none is followed.
        editable: Let users add images to the gallery and remove them.
        allow_url: Let users search with an image at an address, which is fetched.
        feedback: Let users say whether a hit is right or wrong, and keep it in this
            folder, see `Feedback`.
        fetcher: Fetches it; by default a `Fetcher` of public addresses.
        access: Checks the bearer token of each request for the gallery; None admits
            everyone.
        only_here: Whether the service is only for this machine, without TLS. Then,
            without `access`, requests for names of other machines are refused.
        reach: Where the service is reached besides; None for nowhere.
        max_upload_bytes: Size above which an uploaded file is refused, at least 1.
        timeout_seconds: How long a request waits for its result, above 0.
        with_metrics: Offer metrics for Prometheus at `/metrics`, which needs a token
            as the gallery does.
        tracing: Records the requests and their stages; None for no traces.
        recorder: Records the queries of the first gallery; None for no record.
        limits: How much is done at once.
        memory: Bounds the images that are decoded at one time; by default to half of
            what this process may still use.

    Returns:
        An ASGI application.

    Raises:
        ValueError: A limit is out of range, both searches have the same name, or pages
            of any origin may read without a token.
        LockedError: `editable`, and another process changes the gallery.
        OSError: `editable`, and the folder of the gallery cannot be written to.
    """
    if not timeout_seconds > 0:
        raise ValueError(
            "`timeout_seconds` must be above 0. "
            f"Received: timeout_seconds={timeout_seconds}."
        )
    reach = Reach() if reach is None else reach
    reach.check_open(has_tokens=access is not None)
    limits = Limits() if limits is None else limits
    reader = RequestReader(max_upload_bytes, piece_bytes=limits.piece_bytes)
    searches = {each.name: each for each in (search, compare) if each is not None}
    if compare is not None and len(searches) < 2:
        raise ValueError(
            "`search` and `compare` must have different names. "
            f"Received: {shown(search.name)} twice."
        )
    if allow_url and fetcher is None:
        fetcher = Fetcher(max_bytes=max_upload_bytes)
    memory = ImageMemory() if memory is None else memory
    metrics = SearchMetrics(searches) if with_metrics else None
    main = search.name

    def prepare(each: ImageSearch) -> None:
        each.memory = memory
        each.stage = stages_of(metrics, tracing)
        if metrics is not None:
            each.seen = functools.partial(metrics.recall.keep, each.name)
        if recorder is not None and each.name == main and not each.pair.is_bridged:
            each.came = recorder.keeper(each.index)
        each.listing.classes()  # slow the first time, for a large gallery
        if editable and each.name == main and not each.pair.is_bridged:
            each.editor = GalleryEditor(each.index, on_change=each.listing.changed)

    for each in searches.values():
        prepare(each)
    service = SearchService(
        searches,
        reader,
        can_edit=editable,
        can_rate=feedback is not None,
        fetcher=fetcher if allow_url else None,
        timeout_seconds=timeout_seconds,
        limits=limits,
        metrics=metrics,
    )
    changes = GalleryChanges(service, reader)
    browsing = GalleryBrowsing(service, metrics)
    analysis = GalleryAnalysis(service)
    export = GalleryExport(service)
    reasons = Reasons(service, reader)
    ratings = GalleryFeedback(service, reader, feedback)
    health = Health(searches.values())

    def use(new: ImageSearch) -> None:
        prepare(new)
        service.replace(new)
        analysis.replaced(new)
        if metrics is not None:
            metrics.recall.forget(new.name)

    followers = [
        PairFollower(searches[name], open_, use)
        for name, open_ in (follow or {}).items()
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if metrics is not None:
            metrics.recall.start()
        for follower in followers:
            follower.start()
        yield
        for follower in followers:
            await to_thread.run_sync(follower.close)
        if metrics is not None:
            metrics.recall.close()
        service.close()
        health.close()
        await to_thread.run_sync(analysis.close)
        for each in searches.values():
            if each.editor is not None:
                await to_thread.run_sync(each.editor.close)
        for follower in followers:
            await to_thread.run_sync(follower.close_search)

    files = {
        "/" if file.name == "index.html" else f"/{file.name}": file
        for file in sorted(_STATIC.iterdir())
        if file.suffix in _MEDIA_TYPES
    }
    calls: dict[str, tuple[str, str, Handler]] = {
        "info": ("GET", "/api/info", service.info),
        "search": ("POST", "/api/search", service.nearest),
        "similar": ("GET", "/api/similar", service.similar),
        "sample": ("GET", "/api/images/sample", browsing.sample),
        "images": ("GET", "/api/images", browsing.images),
        "export": ("POST", "/api/export", export.archive),
        "why": ("POST", "/api/why", reasons.why),
        "feedback": ("POST", "/api/feedback", ratings.rate),
        "add": ("POST", "/api/images", changes.add),
        "remove": ("DELETE", "/api/images", changes.remove),
        "stats": ("GET", "/api/stats", browsing.stats),
        "duplicates": ("GET", "/api/duplicates", analysis.duplicates),
        "map": ("GET", "/api/map", analysis.map),
        "thumbnail": ("GET", "/images", browsing.thumbnail),
        "picture": ("GET", "/pictures", browsing.image),
        "live": ("GET", _LIVE, health.live),
        "ready": ("GET", _READY, health.ready),
    }
    if metrics is not None:
        calls["metrics"] = ("GET", "/metrics", metrics.exposition)
    routes = [
        *(
            Route(path, static_file(file, _MEDIA_TYPES[file.suffix]))
            for path, file in files.items()
        ),
        Route(_DESCRIPTION, static_file(_STATIC / "openapi.yaml", "application/yaml")),
        *routes_of(calls),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers=ERROR_HANDLERS,
    )
    app.router.redirect_slashes = False  # so that 404 is JSON
    guard = Guard(
        app,
        access,
        public=(*files, _LIVE, _READY),
        costly=_COSTLY,
        only_here=only_here,
        reach=reach,
    )
    names = {(method, path): name for name, (method, path, _) in calls.items()}
    count = None if metrics is None else metrics.count
    observer = RequestObserver(tracing=tracing, count=count)
    return reach.around(Watch(SecurityHeaders(guard), observer, names))


def run(
    index_folder: str | PathLike[str],
    endpoint_url: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    images: str | PathLike[str] | None = None,
    credentials: Credentials | None = None,
    compare: str | PathLike[str] | None = None,
    compare_endpoint: str | None = None,
    compare_images: str | PathLike[str] | None = None,
    editable: bool = False,
    allow_url: bool = False,
    feedback: str | PathLike[str] | None = None,
    access: TokenAccess | None = None,
    tls: SslConfig | None = None,
    image_memory_bytes: int | None = None,
    reach: Reach | None = None,
    with_metrics: bool = False,
    trace_to: str | None = None,
    recorder: QueryRecorder | None = None,
) -> None:
    """Serve the search page until the process is interrupted.

    Args:
        index_folder: Folder that `tfdml index build` wrote.
        endpoint_url: Address of the model, such as
            `http://127.0.0.1:8501/v1/models/emoji`.
        host: Address to listen on. Any other than the loopback address shows the
            gallery to the network: to everyone there, unless `access` is given.
        port: Port to listen on; 0 chooses a free one.
        images: Folder of the images, if they were moved since they were indexed.
        credentials: What the endpoint asks of its clients.
        compare: Folder of a second index to show beside the first.
        compare_endpoint: Address of the model of the second index; by default that of
            the first.
        compare_images: As `images`, for the second index.
        editable: Let users add images to the first index and remove them.
        allow_url: Let users search with an image at a public address, which is
            fetched.
        feedback: See `create_app`.
        access: Checks the bearer token of each request for the gallery.
        tls: Key and certificates; None for a port without TLS.
        image_memory_bytes: Memory for images while they are decoded, at least 1; by
            default half of what the process may use and does not use at the start.
        reach: Names, origins, path and proxies where the page is reached besides.
        with_metrics: See `create_app`.
        trace_to: Address of an OpenTelemetry collector, see `Tracing`.
        recorder: See `create_app`.

    Raises:
        FileNotFoundError, ValueError: The index is missing, damaged or of another
            model; or `editable` would let everyone on the network change it.
        LockedError: `editable`, and another process changes the index.
        EndpointError: The endpoint did not answer.
        OSError: The port is in use, or the index cannot be written to.
    """
    has_guard = access is not None or (tls is not None and tls.client_verify)
    if (editable or feedback) and not is_loopback(host) and not has_guard:
        raise ValueError(
            "`editable` and `feedback` need a token (`--token-file`) if other machines "
            "can reach the page: without one, they could all change it. Received: "
            f"host={shown(host)}."
        )
    if compare is None and (compare_endpoint or compare_images):
        raise ValueError(
            "`compare_endpoint` and `compare_images` must be given with `compare`."
        )
    with contextlib.ExitStack() as stack:
        tracing = None
        if trace_to is not None:
            tracing = Tracing("tfdml-search", trace_to)
            stack.callback(tracing.close)
        listener = stack.enter_context(open_socket(host, port))
        open_ = functools.partial(open_search, credentials=credentials)
        opened = [functools.partial(open_, index_folder, endpoint_url, images=images)]
        search = stack.enter_context(opened[0]())
        other = None
        if compare is not None:
            name = Path(compare).resolve().name
            opened.append(
                functools.partial(
                    open_,
                    compare,
                    compare_endpoint or endpoint_url,
                    images=compare_images,
                    name=f"{name} (2)" if name == search.name else name,
                )
            )
            other = stack.enter_context(opened[1]())
        both = (each for each in (search, other) if each is not None)
        app = create_app(
            search,
            compare=other,
            follow={each.name: open_ for each, open_ in zip(both, opened, strict=True)},
            editable=editable,
            allow_url=allow_url,
            feedback=feedback,
            access=access,
            only_here=is_loopback(host) and tls is None,
            reach=reach,
            memory=ImageMemory(image_memory_bytes),
            with_metrics=with_metrics,
            tracing=tracing,
            recorder=recorder,
        )
        print(
            f"Image search: {url_of(listener, is_secure=tls is not None)}", flush=True
        )
        context = None if tls is None else ssl_context_for_uvicorn(tls)
        proxies = () if reach is None else reach.trusted_proxies
        serve([(app, listener)], tls=context, trusted_proxies=proxies)
