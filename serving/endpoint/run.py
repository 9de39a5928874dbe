"""Run the endpoint: models from watched folders, answered over REST and gRPC."""

import contextlib
import functools
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import ASGIApp

from tfdml.quiet import quiet_imports

from ..web.access import TokenAccess, is_loopback
from ..web.image_memory import ImageMemory
from ..web.memory_limit import default_image_bytes, default_message_bytes
from ..web.monitoring import Monitoring, read_monitoring_config
from ..web.observer import RequestObserver
from ..web.sockets import GRACE_SECONDS, open_socket, serve, url_of
from ..web.status import StatusCode, refuse
from ..web.tls import (
    SslConfig,
    grpc_credentials,
    read_ssl_config,
    ssl_context_for_uvicorn,
)
from ..web.tracing import Tracing
from .batching.parameters import (
    BatchingParameters,
    read_batching_parameters,
)
from .batching.scheduler import BatchScheduler, OnBatch
from .models.config import (
    ModelConfig,
    model_configs_of,
    parse_model_configs,
    single_model,
)
from .models.config_watch import ConfigWatch
from .models.fingerprint import load_checked, load_unchecked
from .models.places import ModelPlaces, check_fingerprint
from .models.servable import Servable
from .models.served import ServedModels
from .models.watched import WatchedModels
from .options import File, ServerOptions
from .predictor import Predictor
from .rest.api import create_app
from .rpc.message_memory import MessageMemory
from .rpc.server import GrpcServer
from .warm_up import warm_up

_T = TypeVar("_T")


@dataclass(frozen=True)
class Endpoint:
    """An endpoint whose models are loaded; gRPC answers, REST waits for `serve`.

    Attributes:
        app: The application of REST.
        listener: The socket that REST is to answer on.
        url: Address of REST.
        models: What is served.
        grpc_server: The server of gRPC, if there is one.
        tls: Keys and certificates of both ports, if any.
    """

    app: ASGIApp
    listener: socket.socket
    url: str
    models: ServedModels
    grpc_server: GrpcServer | None
    tls: SslConfig | None
    _stop: "_Stop"

    def drain(self) -> None:
        """Begin to stop: refuse new gRPC calls, let those under way go on."""
        seconds = self._stop.seconds_left()
        if self.grpc_server is not None:
            self.grpc_server.drain(seconds)

    def has_ended(self) -> bool:
        """Return whether nothing was left to run when the endpoint stopped."""
        return self._stop.has_ended

    def lines(self) -> list[str]:
        """Describe, line by line, what is served and where."""
        lines = []
        for name in self.models.names():
            versions = sorted(self.models.available_versions(name))
            lines.append(
                f"Serving version {', '.join(map(str, versions))} of {name} at "
                f"{self.url}/v1/models/{name}"
            )
        if self.grpc_server is not None:
            lines.append(f"Serving by gRPC at {self.grpc_server.address}")
        return lines


def run(options: ServerOptions) -> None:
    """Serve models until SIGINT or SIGTERM.

    Raises:
        PortInUseError: Another program listens on a port.
        OSError: A file is missing, or there is no exported model.
        ValueError: A model or file cannot be read, or an option is out of range.
    """
    with opened(options) as endpoint:
        for line in endpoint.lines():
            print(line, flush=True)
        tls = endpoint.tls
        serve(
            [(endpoint.app, endpoint.listener)],
            tls=None if tls is None else ssl_context_for_uvicorn(tls),
            on_stop=endpoint.drain,
            trusted_proxies=options.trusted_proxy,
        )
    if not endpoint.has_ended():
        # Python would wait for the threads that still decode an image.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


@contextlib.contextmanager
def opened(options: ServerOptions) -> Iterator[Endpoint]:
    """Open the ports and load the models; the end of the block stops all of it.

    Raises:
        As `run`.
    """
    configs, config_content = _models(options)
    batching = batching_of(options)
    tls = _read(read_ssl_config, options.ssl_config_file)
    access = _read(TokenAccess, options.token_file)
    metrics_path = _read(read_monitoring_config, options.monitoring_config_file)
    monitoring = None if metrics_path is None else Monitoring()
    tracing = None
    if options.trace_to is not None:
        tracing = Tracing("tfdml-endpoint", options.trace_to)
    observer = RequestObserver(monitoring, tracing=tracing)
    is_guarded = (
        is_loopback(options.host)
        or access is not None
        or (tls is not None and tls.client_verify)
    )
    with contextlib.ExitStack() as stack:
        if tracing is not None:
            stack.callback(tracing.close)
        listener = stack.enter_context(open_socket(options.host, options.port))
        memory = ImageMemory(
            options.image_memory_bytes or None, option="--image-memory-bytes"
        )
        scheduler = BatchScheduler(
            batching, on_batch=_on_batch(monitoring, batching), memory=memory
        )
        messages = MessageMemory(
            options.grpc_memory_bytes or None, longest_bytes=options.grpc_message_bytes
        )
        predictor = Predictor(scheduler, max_pixels=options.max_pixels)
        check = None if options.no_fingerprint_check else check_fingerprint
        places = ModelPlaces(options.download_folder, check)
        stack.callback(places.close)
        watched = WatchedModels(
            configs,
            poll_seconds=options.file_system_poll_wait_seconds,
            load=load_unchecked if options.no_fingerprint_check else load_checked,
            warm_up=warm_up,
            on_warmed_up=_on_warmed_up(monitoring),
            places=places,
        )
        app = create_app(
            watched.served,
            predictor,
            max_body_bytes=options.max_body_bytes,
            timeout_seconds=options.timeout_seconds,
            allow_cors=options.rest_api_enable_cors_support,
            access=access,
            observer=observer,
            metrics_path=metrics_path,
        )
        # Left from the last line up: gRPC first, since its calls need all the others.
        # What has not ended by then is refused, and ends with the process.
        stop = _Stop(GRACE_SECONDS)
        stack.callback(lambda: watched.close(stop.seconds_left()))
        stack.callback(lambda: stop.end(predictor.close(stop.seconds_left())))
        watch = None
        seconds = options.model_config_file_poll_wait_seconds
        if options.model_config_file is not None and seconds > 0:
            watch = ConfigWatch(
                options.model_config_file,
                seconds,
                watched.reload,
                applied=config_content,
            )
            stack.callback(lambda: watch.close(stop.seconds_left()))
        grpc_server = None
        if not options.no_grpc:
            grpc_server = stack.enter_context(
                GrpcServer(
                    watched.served,
                    predictor,
                    host=options.host,
                    port=options.grpc_port,
                    reload=functools.partial(_reload, watched, is_guarded),
                    access=access,
                    observer=observer,
                    credentials=None if tls is None else grpc_credentials(tls),
                    max_message_bytes=options.grpc_message_bytes,
                    memory=messages,
                    max_concurrent_calls=options.grpc_calls,
                    timeout_seconds=options.grpc_timeout_seconds,
                )
            )
            grpc_server.start()
        with quiet_imports():
            import tensorflow  # noqa: F401
        watched.start()
        # Of what the models leave.
        if not options.image_memory_bytes:
            memory.most_bytes = default_image_bytes()
        if not options.grpc_memory_bytes:
            messages.most_bytes = default_message_bytes()
        if grpc_server is not None:
            grpc_server.ready()
        if watch is not None:
            watch.start()
        url = url_of(listener, is_secure=tls is not None)
        yield Endpoint(app, listener, url, watched.served, grpc_server, tls, stop)


def _models(options: ServerOptions) -> tuple[list[ModelConfig], bytes | None]:
    """Return the models, and what their file held when it was read.

    The first look at the file changes nothing where it is still the same.
    """
    if options.model_config_file is not None:
        content = Path(options.model_config_file).read_bytes()
        return parse_model_configs(content, options.model_config_file), content
    # `ServerOptions` has checked that there are both.
    assert options.model_name is not None  # noqa: S101
    assert options.model_base_path is not None  # noqa: S101
    return [single_model(options.model_name, options.model_base_path)], None


def batching_of(options: ServerOptions) -> BatchingParameters:
    """Return how requests are put together into batches."""
    if options.no_batching:
        return BatchingParameters.unbatched()
    if options.batching_parameters_file is None:
        return BatchingParameters()
    return read_batching_parameters(options.batching_parameters_file)


def _read(read: Callable[[File], _T], file: File | None) -> _T | None:
    """Read a file of configuration, where one is given."""
    return None if file is None else read(file)


class _Stop:
    """The time that all parts of the server together have to stop.

    Attributes:
        has_ended: Whether their work has ended, once they have stopped.

    Args:
        seconds: From the first call of `seconds_left` on.
    """

    def __init__(self, seconds: float) -> None:
        self.has_ended = False
        self._seconds = seconds
        self._until: float | None = None

    def end(self, has_ended: bool) -> None:
        """Note whether all work has ended."""
        self.has_ended = has_ended

    def seconds_left(self) -> float:
        """Return what is left of it, at least 0."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        return max(self._until - now, 0.0)


def _reload(watched: WatchedModels, is_guarded: bool, message: Any) -> None:
    """Serve the models of a `ModelServerConfig` from now on.

    A model is code that runs here, and any folder may be named: that is not for
    everybody on the network.
    """
    if not is_guarded:
        refuse(
            "Models are changed by request only where the server listens to its own "
            "machine alone or asks for a token or for certificates. Change the file of "
            "--model-config-file instead.",
            StatusCode.PERMISSION_DENIED,
        )
    try:
        configs = model_configs_of(message)
    except ValueError as error:
        refuse(str(error))
    watched.reload(configs)


def _on_batch(
    monitoring: Monitoring | None, parameters: BatchingParameters
) -> OnBatch | None:
    if monitoring is None:
        return None

    def record(
        servable: Servable,
        rows: Sequence[int],
        padding: int,
        waits: Sequence[float],
        seconds: float,
    ) -> None:
        for wait in waits:
            monitoring.queuing(wait, parameters.thread_pool_name)
        if rows:
            monitoring.batch(rows, padding)
        monitoring.runtime(servable.name, seconds)

    return record


def _on_warmed_up(monitoring: Monitoring | None) -> Any:
    if monitoring is None:
        return None

    def record(folder: Path, seconds: float, error: str | None) -> None:
        status = StatusCode.OK if error is None else StatusCode.INVALID_ARGUMENT
        monitoring.warm_up(str(folder), seconds, status)

    return record
