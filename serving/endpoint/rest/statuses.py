"""The statuses of HTTP for those of TensorFlow and gRPC, as TF Serving maps them."""

from http import HTTPStatus

from serving.endpoint.models.servable import StatusCode

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
"""Status of a reply; what is not here is an internal error."""

STATUS_CODE: dict[int, StatusCode] = {
    HTTPStatus.NOT_FOUND: StatusCode.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: StatusCode.DEADLINE_EXCEEDED,
    HTTPStatus.SERVICE_UNAVAILABLE: StatusCode.UNAVAILABLE,
}
"""For the log, of errors that HTTP itself knows; others are invalid arguments."""
