"""Serve the files of the page, and add security headers to every response."""

from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    b"content-security-policy": (
        b"default-src 'self'; img-src 'self' blob:; base-uri 'none'; "
        b"form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}


class SecurityHeaders:
    """Middleware: the page loads nothing from other hosts and cannot be embedded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS.items()]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def static_file(file: Path, media_type: str) -> Callable[[Request], Response]:
    """Return the handler of one file, which is read now and served from memory."""
    content = file.read_bytes()

    def respond(request: Request) -> Response:
        # The browser asks again each time: an update must not meet an old script.
        return Response(
            content, media_type=media_type, headers={"cache-control": "no-cache"}
        )

    return respond
