"""Define the errors that a client of the search service receives."""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfdml.images import UnreadableImageError
from tfdml.messages import bounded, shown

from ...client import EndpointError, Failure
from ...web.status import HTTP_STATUS, StatusError

_log = logging.getLogger(__name__)

_BUSY = (429, 503, "UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED")
_GONE = (404, "NOT_FOUND")
_NOT_ADMITTED = (401, 403, "UNAUTHENTICATED", "PERMISSION_DENIED")


def refuse(text: str) -> NoReturn:
    """Raise the error for an invalid request."""
    raise HTTPException(400, text)


def missing(id_: str) -> HTTPException:
    """Create the error for an id that the gallery does not have."""
    return HTTPException(404, f"There is no image {shown(id_)} in the gallery.")


def exists(id_: str) -> HTTPException:
    """Create the error for an id that the gallery has already."""
    return HTTPException(409, f"The gallery already has an image {shown(id_)}.")


def too_large(max_upload_bytes: int) -> HTTPException:
    """Create the error for a file above the limit."""
    megabytes = max_upload_bytes / 1_000_000
    return HTTPException(
        413, f"This file is too large. At most {megabytes:g} MB are allowed."
    )


@contextlib.contextmanager
def errors_of_image(id_: str) -> Iterator[None]:
    """Turn what went wrong with an image of the gallery into the client's error."""
    try:
        yield
    except KeyError as error:
        raise missing(id_) from error
    except FileNotFoundError as error:
        raise HTTPException(404, f"The file of {shown(id_)} is gone.") from error
    except UnreadableImageError as error:
        raise HTTPException(404, f"The file of {shown(id_)} is broken.") from error


@contextlib.contextmanager
def errors_of_examples() -> Iterator[None]:
    """Turn what went wrong with one of several images into the client's error."""
    try:
        yield
    except KeyError as error:
        raise HTTPException(
            404, "An image in `queries` or `negatives` was removed from the gallery."
        ) from error
    except FileNotFoundError as error:
        raise HTTPException(404, str(error)) from error


@contextlib.contextmanager
def errors_of_values() -> Iterator[None]:
    """Turn the refusal of a value by the index into the client's error."""
    try:
        yield
    except UnreadableImageError:
        raise
    except ValueError as error:
        refuse(str(error))


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise TypeError(f"`error` must be an HTTPException. Received: {shown(error)}.")
    return JSONResponse(
        {"error": bounded(error.detail)}, error.status_code, error.headers
    )


def explained(error: EndpointError) -> HTTPException:
    """Explain what is wrong with the endpoint, and that it is not the image.

    Its address and what it said are only for the log.
    """
    how = "This is not about your image. See the log of the search service."
    again = {"retry-after": "1"}
    if error.failure is Failure.OTHER_MODEL:
        return HTTPException(
            503,
            "The endpoint serves another model than the one that built this gallery: "
            "its hits would be wrong. Serve that model, or build the index again. "
            f"{how}",
        )
    if error.failure is Failure.LATE:
        return HTTPException(
            504, f"The model did not answer in time. Try again in a moment. {how}"
        )
    if error.status in _BUSY and error.failure is Failure.REFUSED:
        return HTTPException(
            503, f"The model cannot answer now. Try again in a moment. {how}", again
        )
    if error.failure is Failure.UNREACHABLE:
        return HTTPException(
            503, f"The endpoint of the model cannot be reached. {how}", again
        )
    if error.status in _GONE:
        return HTTPException(
            503,
            "The endpoint does not serve the version of the model that built this "
            f"gallery. Serve it, or build the index again with another version. {how}",
        )
    if error.status in _NOT_ADMITTED:
        return HTTPException(
            502, f"The endpoint of the model does not admit this service. {how}"
        )
    return HTTPException(
        502,
        "The model returned no embedding for this image. See the log of the search "
        "service.",
    )


async def _endpoint_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, EndpointError):
        raise TypeError(f"`error` must be an EndpointError. Received: {shown(error)}.")
    _log.warning("%s", error)
    return await _http_error(request, explained(error))


async def _status_error(request: Request, error: Exception) -> Response:
    """Report too many images, or one that is too large, to be decoded."""
    if not isinstance(error, StatusError):
        raise TypeError(f"`error` must be a StatusError. Received: {shown(error)}.")
    status = HTTP_STATUS.get(error.code, 500)
    headers = {"retry-after": "1"} if status == 503 else None
    return JSONResponse({"error": error.message}, status, headers)


async def _unreadable(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": bounded(str(error))}, 400)


async def _internal_error(request: Request, error: Exception) -> Response:
    text = "The search failed. See the log of the search service."
    return JSONResponse({"error": text}, 500)


ERROR_HANDLERS: Mapping[
    type[Exception], Callable[[Request, Exception], Awaitable[Response]]
] = {
    HTTPException: _http_error,
    EndpointError: _endpoint_error,
    StatusError: _status_error,
    UnreadableImageError: _unreadable,
    Exception: _internal_error,
}
"""The handler of each kind of error."""
