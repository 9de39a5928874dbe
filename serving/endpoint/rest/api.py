"""Answer TF Serving's protocol over HTTP, as an ASGI application.

It answers as TF Serving 2.20 does: the same paths, bodies, status codes and error
texts.
"""

import asyncio
import contextlib
import gzip
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import numpy as np
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tfdml.messages import bounded, shortened

from ...web.access import TokenAccess
from ...web.body import ARRIVAL_SECONDS, BodyReader
from ...web.log import request_id
from ...web.observer import Observed, RequestObserver
from ...web.status import HTTP_STATUS, STATUS_CODE, StatusCode, StatusError, refuse
from ..models.info import metadata_json, model_status_json
from ..models.servable import Servable, refuse_method
from ..models.served import ServedModels
from ..options import ServerOptions
from ..predictor import Predictor
from .paths import find_asked, path_of
from .reply import encode_error, encode_predict_reply
from .request import (
    decode_predict_request,
    decode_signature_name,
    decoding_bytes,
)

_MUCH = 128 * 2**10  # bytes of JSON that take a few milliseconds
_VERY_MUCH = 32 * _MUCH
_COMPRESSED_FROM = 32 * 2**10
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.I)

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


def create_app(
    models: ServedModels,
    predictor: Predictor,
    *,
    max_body_bytes: int = ServerOptions.max_body_bytes,
    timeout_seconds: float = ServerOptions.timeout_seconds,
    access: TokenAccess | None = None,
    observer: RequestObserver | None = None,
    metrics_path: str | None = None,
    allow_cors: bool = False,
    look_seconds: float = 0.5,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """Make the web application that answers for the models.

    Args:
        models: What is served.
        predictor: Runs the predictions, of this and other protocols together.
        max_body_bytes: Longest request body that is accepted, at least 1.
        timeout_seconds: How long a prediction may take, waiting included, above 0.
        access: Checks the bearer token of each request; None lets everybody in.
        observer: Logs and counts the requests.
        metrics_path: Path of the metrics of the observer; None for no such path.
        allow_cors: Whether pages of any origin may read the replies.
        look_seconds: How often it is checked that a client has not gone.
        clock: Returns the time in seconds, by which a prediction takes too long.

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
        BodyReader(max_body_bytes, 4 * max_body_bytes, ARRIVAL_SECONDS),
        timeout_seconds,
        access,
        observer or RequestObserver(),
        metrics_path,
        look_seconds,
        clock,
    )
    # A route would answer what it cannot match, such as a path with %0A, itself, and
    # not in JSON.
    router = Router(default=api, lifespan=api.lifespan, redirect_slashes=False)
    if not allow_cors:
        return router
    return CORSMiddleware(
        router,
        allow_origins=["*"],
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["X-Request-Id", "X-Model-Fingerprint", "Retry-After"],
    )


@dataclass
class _Waiting:
    """Whether the client of a request still waits, for the queue."""

    until: float
    clock: Callable[[], float]
    is_gone: bool = False

    def is_active(self) -> bool:
        return not self.is_gone

    def time_remaining(self) -> float:
        return self.until - self.clock()


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
        look_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._models = models
        self._predictor = predictor
        self._bodies = bodies
        self._timeout_seconds = timeout_seconds
        self._access = access
        self._observer = observer
        self._metrics_path = metrics_path
        self._look_seconds = look_seconds
        self._clock = clock
        # One body at a time each; the interpreter lock would allow no more. Those that
        # take seconds do not keep out others.
        self._pool, self._slow_pool = (
            ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("rest", "slow")
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Router) -> AsyncIterator[None]:
        yield
        for pool in (self._pool, self._slow_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        peer = (
            f"{request.client.host}:{request.client.port}" if request.client else None
        )
        id_ = request_id(request.headers.get("x-request-id"))
        with self._observer.observe("REST", id_, peer, request.headers) as observed:
            try:
                response = await self._respond(request, observed)
                if response is None:
                    return
                response.headers["X-Request-Id"] = id_
                if observed.fingerprint is not None:
                    response.headers["X-Model-Fingerprint"] = observed.fingerprint
                await response(scope, receive, send)
            except asyncio.CancelledError:  # the server stops
                observed.status = StatusCode.CANCELLED
                raise

    async def _respond(self, request: Request, observed: Observed) -> Response | None:
        """Answer, whatever happens; None if the client has gone."""
        try:
            if self._access is not None:
                self._access.check(request.headers.get("authorization"))
            return await self._answer(request, observed)
        except StatusError as error:
            observed.status, message = error.code, error.message
            status = HTTP_STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            if error.code.is_failure:
                _log.error("%s: %s", error.code.name, error.message)
        except HTTPException as error:
            status, message = error.status_code, bounded(error.detail)
            observed.status = STATUS_CODE.get(status, StatusCode.INVALID_ARGUMENT)
        except ClientDisconnect:
            observed.status = StatusCode.CANCELLED
            return None
        except asyncio.CancelledError:  # the server stops
            observed.status = StatusCode.UNAVAILABLE
            status = HTTPStatus.SERVICE_UNAVAILABLE
            message = "The server stopped before the answer was there. Retry."
        except Exception as error:
            _log.exception("A request failed.")
            observed.status = StatusCode.INTERNAL
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            message = f"{type(error).__name__}: {shortened(error)}"
        response = _json(encode_error(message), status)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "1"
        if status == HTTPStatus.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    async def _answer(self, request: Request, observed: Observed) -> Response:
        path = path_of(request.scope)
        if path == self._metrics_path and self._observer.monitoring is not None:
            observed.call = "metrics"
            text, content_type = self._observer.monitoring.exposition()
            return Response(text, headers={"Content-Type": content_type})
        if path[:4].lower() != "/v1/":
            raise HTTPException(404, "Not found. Models answer at /v1/models/NAME.")
        asked = find_asked(request.method, path)
        observed.call = asked.call
        if asked.model is None:
            refuse("Missing model name in request.")
        observed.model, observed.version = asked.model, asked.version()
        named = (observed.model, observed.version, asked.label)
        if asked.call == "status":
            return _json(model_status_json(self._models.status(*named)))
        with self._models.lease(*named) as servable:
            observed.answered_by(servable)
            if asked.call == "metadata":
                return _json(metadata_json(servable))
            # The block holds on to the end: the inputs take as much as the body.
            async with self._bodies.read(request) as body:
                observed.request_bytes = len(body)
                until = self._clock() + self._timeout_seconds
                waiting = _Waiting(until, self._clock)
                try:
                    if asked.call == "predict":
                        return await self._predict(servable, request, body, waiting)
                    name = await self._decoded(
                        body, lambda: decode_signature_name(body), waiting
                    )
                    refuse_method(servable, name, asked.call)
                finally:
                    waiting.is_gone = True

    async def _predict(
        self, servable: Servable, request: Request, body: bytearray, waiting: _Waiting
    ) -> Response:
        def submit() -> tuple[bool, Future[dict[str, np.ndarray]]]:
            asked = decode_predict_request(body, servable.signatures)
            # This looks at each image, which can take as long as the decoding.
            future = self._predictor.submit(
                servable, asked.signature_name, asked.inputs, waiting
            )
            return asked.row_format, future

        row_format, future = await self._decoded(body, submit, waiting)
        outputs = await self._result(future, waiting, request)
        can_unpack = _GZIP.search(request.headers.get("accept-encoding", ""))

        def encode() -> Response:
            reply = encode_predict_reply(outputs, row_format=row_format)
            if len(reply) < _COMPRESSED_FROM:
                return _json(reply)
            # Level 1, and long replies alone: floats compress to a half at best.
            response = _json(gzip.compress(reply, 1) if can_unpack else reply)
            response.headers["Vary"] = "Accept-Encoding"
            if can_unpack:
                response.headers["Content-Encoding"] = "gzip"
            return response

        values = sum(array.size for array in outputs.values())
        return await self._in_thread_if(values * 10, encode, waiting)

    async def _result(
        self,
        outputs: Future[dict[str, np.ndarray]],
        waiting: _Waiting,
        request: Request,
    ) -> dict[str, np.ndarray]:
        future = asyncio.wrap_future(outputs)
        try:
            while not future.done():
                remaining = waiting.time_remaining()
                await asyncio.wait(
                    {future}, timeout=min(max(remaining, 0.0), self._look_seconds)
                )
                if future.done():
                    break
                if await request.is_disconnected():
                    raise ClientDisconnect
                if remaining <= 0:
                    raise self._too_late()
            return future.result()
        finally:
            future.cancel()

    def _too_late(self) -> StatusError:
        return StatusError(
            StatusCode.DEADLINE_EXCEEDED,
            f"The prediction did not end within {self._timeout_seconds:g} seconds.",
        )

    async def _decoded(
        self, body: bytearray, decode: Callable[[], _Result], waiting: _Waiting
    ) -> _Result:
        """Decode a body within the memory for that."""
        if len(body) <= _MUCH:
            return decode()

        def decode_in_memory() -> _Result:
            # Python's lists and numbers take up to 80 times the memory of their JSON.
            size, seconds = decoding_bytes(body), max(waiting.time_remaining(), 0.0)
            with self._predictor.memory.hold(size, seconds, what="JSON body"):
                return decode()

        return await self._in_thread_if(len(body), decode_in_memory, waiting)

    async def _in_thread_if(
        self, size: int, work: Callable[[], _Result], waiting: _Waiting
    ) -> _Result:
        """Do what takes long beside the requests that come in, all else at once.

        Args:
            size: Bytes of JSON that it reads or writes.
            work: What to do.
            waiting: Knows whether the client still waits.
        """
        if size <= _MUCH:
            return work()

        def work_if_awaited() -> _Result:
            # Others may have been in the thread for long.
            if waiting.is_gone or waiting.time_remaining() <= 0:
                raise self._too_late()
            return work()

        pool = self._slow_pool if size > _VERY_MUCH else self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, work_if_awaited)


def _json(body: bytes, status: int = HTTPStatus.OK) -> Response:
    return Response(body, status, headers={"Content-Type": "application/json"})
