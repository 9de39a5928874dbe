"""The REST endpoint: TF Serving's protocol over HTTP, as an ASGI application.

It answers as TF Serving 2.20 does: the same paths, bodies, status codes and error
texts.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn, TypeVar
from urllib.parse import unquote

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serving.access import TokenAccess
from serving.models.info import metadata_json, model_status_json
from serving.models.servable import Servable, ServableError, StatusCode
from serving.models.served import ServedModels
from serving.predictor import Predictor
from serving.request_log import request_id
from serving.request_observer import Observed, RequestObserver
from serving.rest.body import BodyReader
from serving.rest.reply import encode_error, encode_predict_reply
from serving.rest.request import PredictRequest, decode_predict_request

__all__ = ["MAX_BODY_BYTES", "TIMEOUT_SECONDS", "create_app"]

MAX_BODY_BYTES = 64 * 2**20
"""Longest request body that is accepted unless another limit is set."""

TIMEOUT_SECONDS = 30.0
"""How long a prediction may take, waiting included, as TF Serving's default."""

_BODY_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_MUCH = 128 * 2**10  # bytes of JSON that take a few milliseconds
_COMPRESSED_FROM = 32 * 2**10

_MODEL = r"/v1/models/(?P<model>[^/:]+)"
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(f"{_MODEL}{_VERSION}:(?P<method>classify|regress|predict)", re.I)
_GET = re.compile(
    f"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION}(?P<metadata>/metadata)?", re.I
)

_HTTP_STATUS = {
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

_Result = TypeVar("_Result")

_STATUS_CODE: dict[int, StatusCode] = {
    HTTPStatus.NOT_FOUND: StatusCode.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT: StatusCode.DEADLINE_EXCEEDED,
    HTTPStatus.SERVICE_UNAVAILABLE: StatusCode.UNAVAILABLE,
}

_log = logging.getLogger(__name__)


def create_app(
    models: ServedModels,
    predictor: Predictor,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    timeout_seconds: float = TIMEOUT_SECONDS,
    access: TokenAccess | None = None,
    observer: RequestObserver | None = None,
    metrics_path: str | None = None,
) -> Starlette:
    """Make the web application that answers for the models.

    Args:
        models: What is served.
        predictor: Runs the predictions, of this and other protocols together.
        max_body_bytes: Longest request body that is accepted, at least 1.
        timeout_seconds: How long a prediction may take, waiting included, above 0.
        access: Checks the bearer token of each request; None lets everybody in.
        observer: Logs and counts the requests.
        metrics_path: Path of the metrics of the observer; None for no such path.

    Returns:
        An ASGI application.

    Raises:
        ValueError: A limit is out of range.
    """
    if max_body_bytes < 1:
        raise ValueError(
            "`max_body_bytes` must be at least 1. "
            f"Received: max_body_bytes={max_body_bytes}."
        )
    if not timeout_seconds > 0:
        raise ValueError(
            "`timeout_seconds` must be above 0. "
            f"Received: timeout_seconds={timeout_seconds}."
        )
    api = _RestApi(
        models,
        predictor,
        BodyReader(max_body_bytes, 4 * max_body_bytes, _BODY_SECONDS),
        timeout_seconds,
        access,
        observer or RequestObserver(),
        metrics_path,
    )
    app = Starlette(
        # Level 1, and long replies alone: floats compress to a half at best.
        middleware=[
            Middleware(GZipMiddleware, minimum_size=_COMPRESSED_FROM, compresslevel=1)
        ],
        lifespan=api.lifespan,
    )
    # A route would answer what it cannot match, such as a path with %0A, itself, and
    # not in JSON.
    app.router.default = api
    return app


@dataclass
class _Waiting:
    """Whether the client of a request still waits, for the queue."""

    until: float
    is_gone: bool = False

    def is_active(self) -> bool:
        return not self.is_gone

    def time_remaining(self) -> float:
        return self.until - time.monotonic()


class _RestApi:
    """Answers each request; one instance holds the limits of one application."""

    def __init__(
        self,
        models: ServedModels,
        predictor: Predictor,
        bodies: BodyReader,
        timeout_seconds: float,
        access: TokenAccess | None,
        observer: RequestObserver,
        metrics_path: str | None,
    ) -> None:
        self._models = models
        self._predictor = predictor
        self._bodies = bodies
        self._timeout_seconds = timeout_seconds
        self._access = access
        self._observer = observer
        self._metrics_path = metrics_path
        # Python's lists and numbers take up to 30 times the memory of their JSON. One
        # long body at a time bounds that; the interpreter lock would allow no more.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rest")

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        peer = (
            f"{request.client.host}:{request.client.port}" if request.client else None
        )
        id_ = request_id(request.headers.get("x-request-id"))
        with self._observer.observe("REST", id_, peer) as observed:
            response = await self._respond(request, observed)
            if response is None:
                return
            response.headers["X-Request-Id"] = id_
            await response(scope, receive, send)

    async def _respond(self, request: Request, observed: Observed) -> Response | None:
        """Answer, whatever happens; None if the client has gone."""
        try:
            if self._access is not None:
                self._access.check(request.headers.get("authorization"))
            return await self._answer(request, observed)
        except ServableError as error:
            observed.status, message = error.code, error.message
            status = _HTTP_STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.error("%s: %s", error.code.name, error.message)
        except HTTPException as error:
            status, message = error.status_code, error.detail
            observed.status = _STATUS_CODE.get(status, StatusCode.INVALID_ARGUMENT)
        except ClientDisconnect:
            observed.status = StatusCode.CANCELLED
            return None
        except Exception as error:
            _log.exception("A request failed.")
            observed.status = StatusCode.INTERNAL
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            message = f"{type(error).__name__}: {str(error)[:500]}"
        response = _json(encode_error(message), status)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "1"
        if status == HTTPStatus.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    async def _answer(self, request: Request, observed: Observed) -> Response:
        path = request.scope.get("raw_path", request.scope["path"].encode()).decode(
            "latin-1"
        )
        # HTTP lets a client send the whole address, as it does to a proxy.
        path = re.sub("^https?://[^/]*", "", path, flags=re.I)
        if path == self._metrics_path and self._observer.monitoring is not None:
            observed.call = "metrics"
            text, content_type = self._observer.monitoring.exposition()
            return Response(text, headers={"Content-Type": content_type})
        if not path.lower().startswith("/v1/"):
            raise HTTPException(404, "Not found. Models answer at /v1/models/NAME.")
        if request.method == "POST" and (match := _POST.fullmatch(path)):
            observed.call = match["method"].lower()
            with self._lease(match, observed) as servable:
                if observed.call != "predict":
                    _refuse_method(servable, observed.call)
                return _json(await self._predict(servable, request, observed))
        if request.method == "GET" and (match := _GET.fullmatch(path)):
            observed.call = "metadata" if match["metadata"] else "status"
            if match["model"] is None:
                raise ServableError(
                    StatusCode.INVALID_ARGUMENT, "Missing model name in request."
                )
            if match["metadata"]:
                with self._lease(match, observed) as servable:
                    return _json(metadata_json(servable))
            observed.model, version, label = _model_of(match)
            return _json(
                model_status_json(self._models.status(observed.model, version, label))
            )
        raise ServableError(
            StatusCode.INVALID_ARGUMENT, f"Malformed request: {request.method} {path}"
        )

    @contextlib.contextmanager
    def _lease(self, match: re.Match[str], observed: Observed) -> Iterator[Servable]:
        observed.model, observed.version, label = _model_of(match)
        with self._models.lease(observed.model, observed.version, label) as servable:
            observed.answered_by(servable)
            yield servable

    async def _predict(
        self, servable: Servable, request: Request, observed: Observed
    ) -> bytes:
        waiting = _Waiting(time.monotonic() + self._timeout_seconds)
        # The block holds on to the end, because the inputs take as much as the body.
        async with self._bodies.read(request) as body:
            observed.request_bytes = len(body)
            asked = await self._in_thread_if(
                len(body) > _MUCH,
                lambda: decode_predict_request(body, servable.signatures),
            )
            outputs = await self._result(servable, asked, waiting, request)
            return await self._in_thread_if(
                sum(array.size for array in outputs.values()) > _MUCH // 10,
                lambda: encode_predict_reply(outputs, row_format=asked.row_format),
            )

    async def _result(
        self,
        servable: Servable,
        asked: PredictRequest,
        waiting: _Waiting,
        request: Request,
    ) -> dict[str, np.ndarray]:
        future = asyncio.wrap_future(
            self._predictor.submit(
                servable, asked.signature_name, asked.inputs, waiting
            )
        )
        while True:
            remaining = waiting.time_remaining()
            done, _ = await asyncio.wait(
                {future}, timeout=min(max(remaining, 0.0), _LOOK_SECONDS)
            )
            if done:
                return future.result()
            if await request.is_disconnected():
                waiting.is_gone = True
                future.cancel()
                raise ClientDisconnect
            if remaining <= 0:
                future.cancel()
                raise ServableError(
                    StatusCode.DEADLINE_EXCEEDED,
                    "The prediction did not end within "
                    f"{self._timeout_seconds:g} seconds.",
                )

    async def _in_thread_if(
        self, is_long: bool, work: Callable[[], _Result]
    ) -> _Result:
        """Do what takes long beside the requests that come in, all else at once."""
        if not is_long:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _json(body: bytes, status: int = HTTPStatus.OK) -> Response:
    return Response(body, status, headers={"Content-Type": "application/json"})


def _model_of(match: re.Match[str]) -> tuple[str, int | None, str | None]:
    """Return the name, version and label that a path names."""
    label = None if match["label"] is None else unquote(match["label"])
    return unquote(match["model"]), _version(match["version"]), label


def _version(digits: str | None) -> int | None:
    if digits is None:
        return None
    if len(digits) > 19 or int(digits) >= 2**63:
        raise ServableError(
            StatusCode.INVALID_ARGUMENT,
            f"Failed to convert version: {digits} to numeric.",
        )
    return int(digits)


def _refuse_method(servable: Servable, method: str) -> NoReturn:
    kind = {"classify": "classification", "regress": "regression"}[method]
    found = {signature.method_name for signature in servable.signatures.values()}
    raise ServableError(
        StatusCode.INVALID_ARGUMENT,
        f"Expected {kind} signature method_name to be tensorflow/serving/{method}. "
        f"Was: {', '.join(sorted(found))}",
    )
