"""The REST endpoint: TF Serving's protocol over HTTP, for models in this process.

It answers as TF Serving 2.20 does: the same paths, bodies, status codes and error
texts. TensorFlow is imported when a model is loaded. `run` starts the gRPC endpoint
(`serving.grpc_server`) beside it.
"""

import asyncio
import contextlib
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from os import PathLike
from typing import NoReturn
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from serving.grpc_server import (
    MAX_CONCURRENT_CALLS,
    MAX_MESSAGE_BYTES,
    GrpcServer,
)
from serving.model_info import metadata_json, status_json
from serving.request_body import BodyReader
from serving.rest_reply import encode_error, encode_predict_reply
from serving.rest_request import decode_predict_request
from serving.saved_model import find_model_version
from serving.servable import Servable, ServableError, StatusCode, load_servable
from serving.sockets import open_socket, serve, url_of

__all__ = ["MAX_BODY_BYTES", "create_app", "run"]

MAX_BODY_BYTES = 64 * 2**20
"""Longest request body that is accepted unless another limit is set."""

_BODY_SECONDS = 60.0
_MOST_WAITING = 256

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

_log = logging.getLogger(__name__)


def run(
    model_name: str,
    model_base_path: str | PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8501,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_concurrent_predictions: int | None = None,
    grpc_port: int | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_concurrent_calls: int = MAX_CONCURRENT_CALLS,
) -> None:
    """Serve the latest version of a model until SIGINT or SIGTERM.

    Args:
        model_name: Name in the address of the model.
        model_base_path: Folder with one numbered folder a version.
        host: Address to listen on; the default keeps other machines out.
        port: Port to listen on; 0 for any free one, which is printed.
        max_body_bytes: Longest request body that is accepted.
        max_concurrent_predictions: Predictions that run at one time; the others wait.
            By default one for each core.
        grpc_port: Port of the gRPC server beside it; 0 for any free one, which is
            printed, None for no such server.
        max_message_bytes: Longest gRPC message in both directions.
        max_concurrent_calls: gRPC calls that are taken at one time.

    Raises:
        PortInUseError: Another program listens on a port.
        FileNotFoundError: There is no exported model.
        ValueError: The model cannot be loaded, or an argument is out of range.
    """
    turns = threading.BoundedSemaphore(_threads(max_concurrent_predictions))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(open_socket(host, port))
        grpc_server = None
        if grpc_port is not None:
            grpc_server = stack.enter_context(
                GrpcServer(
                    host,
                    grpc_port,
                    turns=turns,
                    max_message_bytes=max_message_bytes,
                    max_concurrent_calls=max_concurrent_calls,
                )
            )
            found = find_model_version(model_base_path)
            grpc_server.start([replace(found, name=model_name)])
        servable = load_servable(model_name, model_base_path)
        app = create_app(
            [servable],
            max_body_bytes=max_body_bytes,
            max_concurrent_predictions=max_concurrent_predictions,
            turns=turns,
        )
        print(
            f"Serving version {servable.version} of {model_name} at "
            f"{url_of(listener)}/v1/models/{model_name}",
            flush=True,
        )
        if grpc_server is None:
            serve([(app, listener)])
            return
        grpc_server.loaded([servable])
        print(f"Serving it by gRPC at {grpc_server.address}", flush=True)
        serve([(app, listener)], on_stop=grpc_server.drain)


def create_app(
    servables: Iterable[Servable],
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_concurrent_predictions: int | None = None,
    turns: threading.Semaphore | None = None,
) -> Starlette:
    """Make the web application that answers for loaded models.

    Args:
        servables: The versions to answer for. A request that names no version goes to
            the highest one of its model.
        max_body_bytes: Longest request body that is accepted, at least 1.
        max_concurrent_predictions: Predictions that run at one time, at least 1; by
            default one for each core.
        turns: Bounds the predictions over this and other protocols together.

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
    threads = _threads(max_concurrent_predictions)
    turns = turns or threading.BoundedSemaphore(threads)
    api = _RestApi(servables, max_body_bytes, threads, turns)
    return Starlette(
        routes=[Route("/{path:path}", endpoint=api)], lifespan=api.lifespan
    )


def _threads(max_concurrent_predictions: int | None) -> int:
    threads = max_concurrent_predictions
    if threads is None:
        threads = os.cpu_count() or 1
    if threads < 1:
        raise ValueError(
            "`max_concurrent_predictions` must be at least 1. "
            f"Received: max_concurrent_predictions={threads}."
        )
    return threads


class _RestApi:
    """Answers each request; one instance holds the limits of one application."""

    def __init__(
        self,
        servables: Iterable[Servable],
        max_body_bytes: int,
        threads: int,
        turns: threading.Semaphore,
    ) -> None:
        self._servables: dict[str, dict[int, Servable]] = {}
        for servable in servables:
            self._servables.setdefault(servable.name, {})[servable.version] = servable
        self._bodies = BodyReader(max_body_bytes, 4 * max_body_bytes, _BODY_SECONDS)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="predict")
        # Python's lists and numbers take up to 30 times the memory of their JSON. One
        # body at a time bounds that; the interpreter lock would allow no more anyway.
        self._decoding = threading.Lock()
        self._waiting = 0
        self._turns = turns

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            status, body = 200, await self._answer(request)
        except ServableError as error:
            status = _HTTP_STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
            body = encode_error(error.message)
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.error("%s: %s", error.code.name, error.message)
        except HTTPException as error:
            status, body = error.status_code, encode_error(error.detail)
        except ClientDisconnect:
            return
        except Exception as error:
            _log.exception("A request failed.")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            body = encode_error(f"{type(error).__name__}: {str(error)[:500]}")
        response = Response(body, status, headers={"Content-Type": "application/json"})
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> bytes:
        path = request.scope.get("raw_path", request.scope["path"].encode()).decode(
            "latin-1"
        )
        if not path.lower().startswith("/v1/"):
            raise HTTPException(404, "Not found. Models answer at /v1/models/NAME.")
        if request.method == "POST" and (match := _POST.fullmatch(path)):
            servable = self._find(match)
            if match["method"].lower() != "predict":
                _refuse_method(servable, match["method"].lower())
            async with self._bodies.read(request) as body:
                return await self._predict_in_thread(servable, body)
        if request.method == "GET" and (match := _GET.fullmatch(path)):
            if match["model"] is None:
                raise ServableError(
                    StatusCode.INVALID_ARGUMENT, "Missing model name in request."
                )
            if match["metadata"]:
                return metadata_json(self._find(match))
            return self._status(match)
        raise ServableError(
            StatusCode.INVALID_ARGUMENT, f"Malformed request: {request.method} {path}"
        )

    def _find(self, match: re.Match[str]) -> Servable:
        name, version = unquote(match["model"]), _version(match)
        versions = self._servables.get(name, {})
        wanted = max(versions, default=None) if version is None else version
        if wanted is None or wanted not in versions:
            sought = (
                f"Latest({name})" if version is None else f"Specific({name}, {version})"
            )
            raise ServableError(
                StatusCode.NOT_FOUND, f"Servable not found for request: {sought}"
            )
        return versions[wanted]

    def _status(self, match: re.Match[str]) -> bytes:
        name, version = unquote(match["model"]), _version(match)
        versions = self._servables.get(name, {})
        if version is not None:
            if version not in versions:
                raise ServableError(
                    StatusCode.NOT_FOUND,
                    f"Could not find version {version} of model {name}",
                )
            return status_json([versions[version]])
        if not versions:
            raise ServableError(
                StatusCode.NOT_FOUND, f"Could not find any versions of model {name}"
            )
        return status_json(versions.values())

    async def _predict_in_thread(self, servable: Servable, body: bytearray) -> bytes:
        if self._waiting >= _MOST_WAITING:
            raise ServableError(
                StatusCode.UNAVAILABLE, "Too many requests are waiting. Retry."
            )
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._predict, servable, body)
        finally:
            self._waiting -= 1

    def _predict(self, servable: Servable, body: bytearray) -> bytes:
        with self._decoding:
            request = decode_predict_request(body, servable.signatures)
        with self._turns:
            outputs = servable.predict(request.inputs, request.signature_name)
        return encode_predict_reply(outputs, row_format=request.row_format)


def _version(match: re.Match[str]) -> int | None:
    if match["label"] is not None:
        raise ServableError(
            StatusCode.INVALID_ARGUMENT,
            f"Unrecognized servable version label: {unquote(match['label'])}",
        )
    digits = match["version"]
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
