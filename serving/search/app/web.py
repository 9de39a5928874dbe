"""What the search service asks of HTTP beside its routes: headers, files, numbers."""

from collections.abc import Callable
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST_NUMBER = 18
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
    """Middleware: the page loads nothing from elsewhere, and nobody embeds it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and add the headers to its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS.items()]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def whole_number(text: str, name: str, least: int, most: int | None = None) -> int:
    """Read a whole number from a request.

    Args:
        text: What was sent.
        name: Name of the argument, for the error.
        least: Smallest number allowed.
        most: Largest number allowed, if any.

    Returns:
        The number.

    Raises:
        HTTPException: 400, the text is no whole number in the range.
    """
    # Python takes long to read a number of thousands of digits, or refuses.
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER:
        number = int(text)
        if least <= number and (most is None or number <= most):
            return number
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise HTTPException(
        400,
        f"`{name}` must be a whole number {limits}. Received: {name}={text[:40]!r}.",
    )


def too_large(max_upload_bytes: int) -> HTTPException:
    """Make the error for a file above the limit."""
    megabytes = max_upload_bytes / 1_000_000
    return HTTPException(
        413, f"This file is too large; at most {megabytes:g} MB are taken."
    )


def static_file(file: Path, media_type: str) -> Callable[[Request], Response]:
    """Make the handler of one file, which is read now and served from memory."""
    content = file.read_bytes()

    def respond(request: Request) -> Response:
        # The browser asks again each time: an update must not meet an old script.
        return Response(
            content, media_type=media_type, headers={"cache-control": "no-cache"}
        )

    return respond
