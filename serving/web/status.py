"""Define how a request ends: status codes, their error, and HTTP's statuses."""

import enum
from http import HTTPStatus
from typing import NoReturn

from tfdml.messages import bounded


class StatusCode(enum.IntEnum):
    """The status codes of TensorFlow and gRPC, by their common numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def is_failure(self) -> bool:
        """Whether the server itself is at fault, which is logged as an error."""
        return self in (StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DATA_LOSS)


class StatusError(Exception):
    """A request that cannot be answered, with the code and text for the client."""

    def __init__(self, code: StatusCode, message: str) -> None:
        self.code = code
        self.message = bounded(message)
        super().__init__(self.message)


def refuse(message: str, code: StatusCode = StatusCode.INVALID_ARGUMENT) -> NoReturn:
    """Raise the error that explains to the client what is wrong with its request."""
    raise StatusError(code, message)


HTTP_STATUS: dict[StatusCode, int] = {
    StatusCode.CANCELLED: 499,
    StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    StatusCode.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    StatusCode.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    StatusCode.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    StatusCode.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    StatusCode.ABORTED: HTTPStatus.CONFLICT,
    StatusCode.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    StatusCode.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    StatusCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
}
"""Status of a reply, as TF Serving maps it; any other code is an internal error."""

STATUS_CODE: dict[int, StatusCode] = {
    HTTPStatus.NOT_FOUND: StatusCode.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: StatusCode.DEADLINE_EXCEEDED,
    HTTPStatus.SERVICE_UNAVAILABLE: StatusCode.UNAVAILABLE,
}
"""For the log, of errors raised by HTTP itself; others are invalid arguments."""
