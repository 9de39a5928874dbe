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
from ...web.log import request_id
from ...web.observer import RequestObserver
from ...web.status import HTTP_STATUS, StatusCode, StatusError

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORT = re.compile(r":[0-9]*\Z")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")
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
        allowed_hosts: Names under which a proxy or the network offers the service, in
            lower case and without a port: they count as names of this machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: TokenAccess | None,
        *,
        public: Iterable[str] = (),
        costly: Iterable[str] = (),
        reading: Iterable[str] = ("/api/search",),
        only_here: bool = False,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._access = access
        self._public = frozenset(public)
        self._costly = frozenset(costly)
        self._reading = frozenset(reading)
        self._allowed_hosts = frozenset(allowed_hosts)
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
        if self._access is not None and scope["path"] not in self._public:
            try:
                self._access.check(headers.get("authorization"))
            except StatusError as error:
                return _error(401, error.message, {"www-authenticate": "Bearer"})
        is_open = self._access is None
        # Whatever the scheme: a header of the request may set it.
        if is_open and self._only_here and not self._is_own_name(headers):
            return _not_here(headers)
        if scope["method"] in _SAFE and scope["path"] not in self._costly:
            return None
        if not self._is_same_origin(headers):
            return _foreign(headers)
        # What may be read under any name may be searched under any.
        if scope["method"] in _SAFE or scope["path"] in self._reading:
            return None
        # A stranger has no certificate for its name here.
        is_open = is_open and scope["scheme"] == "http"
        if is_open and _is_browser(headers) and not self._is_own_name(headers):
            return _not_here(headers)
        return None

    def _is_same_origin(self, headers: Headers) -> bool:
        """Return whether a request comes from the page of this service, or no page."""
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return False
        origin = headers.get("origin")
        if origin is None:
            return True
        try:
            # Without the scheme: a proxy in front may use another one.
            parts = urlsplit(origin)
            own = headers.get("host", "").lower()
            # A proxy may pass on its own `Host`; a browser tells the page's name.
            return (
                parts.netloc.lower() == own != ""
                or (parts.hostname or "") in self._allowed_hosts
            )
        except ValueError:
            return False

    def _is_own_name(self, headers: Headers) -> bool:
        host = _PORT.sub("", headers.get("host", "")).strip("[]").lower()
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


def check_host_name(name: str) -> str:
    """Check the name of a host, as `allowed_hosts` takes it.

    Returns:
        The name, in lower case.

    Raises:
        ValueError: It has a scheme, a port or a path, or is empty.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "`allowed_hosts` must be names of hosts without scheme, port and path, "
            f"such as images.example.com. Received: {shown(name)}."
        )
    return name.lower()


def _is_browser(headers: Headers) -> bool:
    return "origin" in headers or "sec-fetch-site" in headers


def _not_here(headers: Headers) -> Response:
    host = headers.get("host", "")[:100]
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
