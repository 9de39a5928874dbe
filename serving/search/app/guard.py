"""Admit or refuse the requests of the search service, and log each.

The page itself is for everyone who can reach the port; with tokens, the gallery is not.
Requests that change the gallery, or that cost much work, must come from the page of
this service or from a program: otherwise the page of a stranger, open in the same
browser, could delete images. And a service that is only for this machine answers only
to the names of this machine: the owner of any other name can point it here, and then
the page of a stranger looks like the page of this service.
"""

import asyncio
import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfdml.messages import shown

from ...web.access import TokenAccess
from ...web.forwarded import forwarded_hosts
from ...web.log import request_id
from ...web.observer import RequestObserver
from ...web.status import HTTP_STATUS, StatusCode, StatusError
from .reach import Reach

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORT = re.compile(r":[0-9]*\Z")
_CODES = {int(status): code for code, status in HTTP_STATUS.items()} | {
    400: StatusCode.INVALID_ARGUMENT,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.ALREADY_EXISTS,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.INVALID_ARGUMENT,
    502: StatusCode.UNAVAILABLE,
}


class Watch:
    """Middleware: give each request an id, and a line in the log.

    Args:
        app: Answers the requests.
        observer: Writes the lines.
        calls: The name of a request in the log, by its method and path; others are
            "unknown".
    """

    def __init__(
        self,
        app: ASGIApp,
        observer: RequestObserver,
        calls: Mapping[tuple[str, str], str],
    ) -> None:
        self._app = app
        self._observer = observer
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log how it ends."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        id_ = request_id(headers.get("x-request-id"))
        client = scope.get("client")
        peer = f"{client[0]}:{client[1]}" if client else None
        with self._observer.observe("REST", id_, peer, headers) as observed:
            observed.call = self._calls.get((scope["method"], scope["path"]), "unknown")
            observed.status = StatusCode.CANCELLED  # unless there is an answer

            async def send_with_id(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message)["x-request-id"] = id_
                    observed.status = _code_of(message["status"])
                await send(message)

            try:
                await self._app(scope, receive, send_with_id)
            except asyncio.CancelledError:  # the server stops
                observed.status = StatusCode.CANCELLED
                raise


def _code_of(status: int) -> StatusCode:
    if status < 400:
        return StatusCode.OK
    fallback = StatusCode.INTERNAL if status >= 500 else StatusCode.INVALID_ARGUMENT
    return _CODES.get(status, fallback)


class Guard:
    """Middleware: refuse requests without a token, and those of other pages.

    Args:
        app: Answers the requests that are admitted.
        access: Checks the token; None admits everyone.
        public: Paths that need no token.
        costly: Paths that pages of strangers may not even read.
        reading: Paths whose requests with a body change nothing.
        only_here: Whether the service is only for this machine, without TLS. Then,
            without tokens, `Host` must name this machine.
        reach: Names and origins that count as those of this machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: TokenAccess | None,
        *,
        public: Iterable[str] = (),
        costly: Iterable[str] = (),
        reading: Iterable[str] = ("/api/search", "/api/export", "/api/why"),
        only_here: bool = False,
        reach: Reach | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._public = frozenset(public)
        self._costly = frozenset(costly)
        self._reading = frozenset(reading)
        reach = Reach() if reach is None else reach
        self._allowed_hosts = frozenset(reach.allowed_hosts)
        self._origins = frozenset(reach.cors_origins)
        self._only_here = only_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it."""
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._access is not None:
            if scope["path"] not in self._public:
                try:
                    self._access.check(headers.get("authorization"))
                except StatusError as error:
                    return _error(401, error.message, {"www-authenticate": "Bearer"})
            # A browser sends no token by itself: whoever shows one means it, whatever
            # the name of the host.
            return None
        hosts = (headers.get("host", ""), *forwarded_hosts(scope))
        # Of all of them: the page of a stranger may send any but `Host`. And whatever
        # the scheme, which a header may set, too.
        is_own = all(map(self._is_own_name, hosts))
        if self._only_here and not is_own:
            return _not_here(hosts)
        if scope["method"] in _SAFE and scope["path"] not in self._costly:
            return None
        if not self._is_same_origin(headers, hosts):
            return _foreign(headers)
        # What may be read under any name may be searched under any.
        if scope["method"] in _SAFE or scope["path"] in self._reading:
            return None
        # A stranger has no certificate for its name here.
        if scope["scheme"] == "http" and _is_browser(headers) and not is_own:
            return _not_here(hosts)
        return None

    def _is_same_origin(self, headers: Headers, hosts: Iterable[str]) -> bool:
        """Return whether a request comes from the page of this service, or no page."""
        origin = headers.get("origin")
        if origin is not None and origin.lower() in self._origins:
            return True
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return False
        if origin is None:
            return True
        try:
            # Without the scheme: a proxy in front may use another one.
            parts = urlsplit(origin)
            # A proxy may pass on its own `Host`; a browser tells the page's name.
            return (
                parts.netloc.lower() in {host.lower() for host in hosts if host}
                or (parts.hostname or "") in self._allowed_hosts
            )
        except ValueError:
            return False

    def _is_own_name(self, name: str) -> bool:
        host = _PORT.sub("", name).strip("[]").lower()
        if not host:  # every browser sends one
            return True
        if host in self._allowed_hosts:
            return True
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def _is_browser(headers: Headers) -> bool:
    return "origin" in headers or "sec-fetch-site" in headers


def _not_here(hosts: Iterable[str]) -> Response:
    host = ", ".join(hosts)[:100]
    return _error(
        403,
        "Without a token, the host must be an address of this machine, such as "
        "127.0.0.1 or localhost. Behind a proxy, or to use another name, start the "
        "service with `--allowed-host NAME`, or with `--token-file`. "
        f"Received: host={shown(host)}.",
    )


def _foreign(headers: Headers) -> Response:
    origin, host = (headers.get(name, "")[:100] for name in ("origin", "host"))
    return _error(
        403,
        "Only the page of this service may send this request. If this is its page, the "
        "proxy before the service changes `Host`: let it pass the name on (nginx: "
        "proxy_set_header Host $http_host), or start the service with `--allowed-host "
        f"NAME`. Received: origin={shown(origin, 60)}, host={shown(host, 60)}.",
    )


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, headers)
