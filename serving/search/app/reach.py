"""Where the page is reached: names of hosts, pages of other origins, a path."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tfdml.messages import shown

from ...web.access import check_proxy

ANY = "*"

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_METHODS = ("GET", "POST", "DELETE")
_SHOWN = ("X-Request-Id", "Retry-After")


@dataclass(frozen=True)
class Reach:
    """Where the page is reached, besides the address that it listens on.

    Attributes:
        allowed_hosts: Names under which a proxy, or the network, offers the page,
            without scheme, port and path.
        cors_origins: Origins, such as `https://shop.example.com`, whose pages may do
            what the page itself may. `*` is any, and needs tokens.
        path_prefix: Path below which a proxy offers the page, where it does not take
            the path away from its requests, such as `/find`; empty for none.
        trusted_proxies: Addresses of proxies, or of networks of them, whose
            `X-Forwarded-For`, `-Proto` and `-Host` count.

    Raises:
        ValueError: A value is not of its form.
    """

    allowed_hosts: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    path_prefix: str = ""
    trusted_proxies: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the values, and write names in lower case."""
        checks = {
            "allowed_hosts": _check_host_name,
            "cors_origins": _check_origin,
            "trusted_proxies": check_proxy,
        }
        for name, check in checks.items():
            values = tuple(map(check, getattr(self, name)))
            object.__setattr__(self, name, values)
        object.__setattr__(self, "path_prefix", _checked_prefix(self.path_prefix))

    def check_open(self, *, has_tokens: bool) -> None:
        """Check that not everyone's pages may read what needs no token.

        Raises:
            ValueError: They may.
        """
        if ANY in self.cors_origins and not has_tokens:
            raise ValueError(
                "`cors_origins` must name origins where there are no tokens "
                "(`--token-file`): with `*`, any page that a user opens could read the "
                "gallery. Received: '*'."
            )

    def around(self, app: ASGIApp) -> ASGIApp:
        """Let an application answer other origins, and below the path."""
        if self.cors_origins:
            app = CORSMiddleware(
                app,
                allow_origins=self.cors_origins,
                allow_methods=_METHODS,
                allow_headers=["*"],
                expose_headers=_SHOWN,
            )
        return _below(app, self.path_prefix) if self.path_prefix else app


def _below(app: ASGIApp, prefix: str) -> ASGIApp:
    """Take a prefix away from paths; those without it stay as they are."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and path == prefix:
            # Links of the page are relative to its folder.
            query = scope.get("query_string", b"").decode("latin-1")
            folder = f"{prefix.rpartition('/')[2]}/"
            reply = RedirectResponse(f"{folder}?{query}" if query else folder)
            await reply(scope, receive, send)
            return
        if path.startswith(f"{prefix}/"):
            scope = {**scope, "path": path.removeprefix(prefix)}
        await app(scope, receive, send)

    return answer


def _check_host_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "`allowed_hosts` must be names of hosts without scheme, port and path, "
            f"such as images.example.com. Received: {shown(name)}."
        )
    return name.lower()


def _check_origin(origin: str) -> str:
    if origin != ANY and not _ORIGIN.fullmatch(origin.lower()):
        raise ValueError(
            "`cors_origins` must be `*`, or origins without a path, such as "
            f"https://shop.example.com or http://localhost:3000. Received: "
            f"{shown(origin)}."
        )
    return origin.lower()


def _checked_prefix(path: str) -> str:
    prefix = path.rstrip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ValueError(
            "`path_prefix` must begin with / and be made of letters, digits and -._~/, "
            f"such as /find. Received: {shown(path)}."
        )
    return prefix
