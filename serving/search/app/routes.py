"""Make the routes of the calls of the search service."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]
"""Answers a call."""


def routes_of(calls: Mapping[str, tuple[str, str, Handler]]) -> list[Route]:
    """Create a route per path, which answers all of its methods."""
    handlers: dict[str, dict[str, Handler]] = {}
    for method, path, handler in calls.values():
        handlers.setdefault(path, {})[method] = handler
    return [
        Route(path, _of_method(own), methods=list(own))
        for path, own in handlers.items()
    ]


def _of_method(handlers: Mapping[str, Handler]) -> Handler:
    async def respond(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await handlers[method](request)

    return respond
