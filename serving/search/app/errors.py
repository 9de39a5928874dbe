"""What a client of the search service is told of an error."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serving.client import EndpointError
from tfdml.images import UnreadableImageError

_log = logging.getLogger(__name__)

_BUSY = (429, 503, "UNAVAILABLE", "RESOURCE_EXHAUSTED")


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise TypeError(f"An HTTPException is expected, not {type(error).__name__}.")
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _endpoint_error(request: Request, error: Exception) -> Response:
    """Tell of an endpoint that is busy, or that did not answer as it should.

    Where it is, and what it said, is for the log alone.
    """
    _log.warning("%s", error)
    status = getattr(error, "status", None)
    how = "The log of the search service says why."
    if status in _BUSY:
        text = f"The model cannot answer now. Try again in a moment. {how}"
        return JSONResponse({"error": text}, 503, {"retry-after": "1"})
    text = f"The model gave no embedding of this picture. {how}"
    return JSONResponse({"error": text}, 502)


async def _unreadable(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _internal_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The search failed; its log says why."}, 500)


ERROR_HANDLERS: Mapping[
    type[Exception], Callable[[Request, Exception], Awaitable[Response]]
] = {
    HTTPException: _http_error,
    EndpointError: _endpoint_error,
    UnreadableImageError: _unreadable,
    Exception: _internal_error,
}
"""What answers, by the kind of the error."""
