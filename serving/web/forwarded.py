"""Take the client, scheme and host of a request from the proxies before a server.

A proxy tells them in `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
Anyone can write these headers, so they count only where the connection comes from an
address that the operator trusts.
"""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_HOSTS = "tfdml.forwarded_hosts"


def behind_proxies(app: ASGIApp, proxies: Sequence[str]) -> ASGIApp:
    """Let an application know what these proxies forward.

    Args:
        app: It finds the client and the scheme in its scope as without a proxy, and the
            names of the host by `forwarded_hosts`.
        proxies: Their addresses, as `check_proxy` returned them.

    Returns:
        An ASGI application for a server that does not look at these headers itself.
    """
    networks = [ipaddress.ip_network(address) for address in proxies]
    inner = ProxyHeadersMiddleware(app, list(proxies))  # type: ignore[arg-type]

    async def noting_hosts(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_from(scope, networks):
            lines = Headers(scope=scope).getlist("x-forwarded-host")
            names = [name.strip() for line in lines for name in line.split(",")]
            scope[_HOSTS] = tuple(name for name in names if name)
        await inner(scope, receive, send)  # type: ignore[arg-type]

    return noting_hosts


def forwarded_hosts(scope: Scope) -> tuple[str, ...]:
    """Return the hosts that clients asked the trusted proxies for, each with its port.

    Each proxy of a chain may add one, so that no place in the order is the client's.
    """
    return scope.get(_HOSTS, ())


def _is_from(
    scope: Scope,
    networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    try:
        address = ipaddress.ip_address((scope.get("client") or ("",))[0])
    except ValueError:  # of a Unix socket
        return False
    return any(address in network for network in networks)
