"""The endpoint: models from watched folders, answered over REST and gRPC."""

import contextlib
import functools
import time
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from serving.endpoint.batching.parameters import BatchingParameters
from serving.endpoint.batching.scheduler import BatchScheduler, OnBatch
from serving.endpoint.models.config import ModelConfig, model_configs_of
from serving.endpoint.models.config_watch import ConfigWatch
from serving.endpoint.models.servable import Servable, StatusCode, refuse
from serving.endpoint.models.watched import WatchedModels
from serving.endpoint.predictor import Predictor
from serving.endpoint.rest.api import create_app
from serving.endpoint.rpc.server import GrpcServer
from serving.web import limits
from serving.web.loopback import is_loopback
from serving.web.monitoring import Monitoring
from serving.web.observer import RequestObserver
from serving.web.sockets import open_socket, serve, url_of
from serving.web.tls import SslConfig, grpc_credentials, ssl_context_for_uvicorn
from serving.web.tokens import TokenAccess


def run(
    configs: Iterable[ModelConfig],
    *,
    host: str = "127.0.0.1",
    port: int = 8501,
    grpc_port: int | None = None,
    batching: BatchingParameters | None = None,
    poll_seconds: float = 1.0,
    config_file: str | PathLike[str] | None = None,
    config_content: bytes | None = None,
    config_file_seconds: float = 0.0,
    metrics_path: str | None = None,
    tls: SslConfig | None = None,
    access: TokenAccess | None = None,
    max_body_bytes: int = limits.MAX_BODY_BYTES,
    max_pixels: int = limits.MAX_PIXELS,
    timeout_seconds: float = limits.TIMEOUT_SECONDS,
    max_message_bytes: int = limits.MAX_MESSAGE_BYTES,
    max_concurrent_calls: int = limits.MAX_CONCURRENT_CALLS,
) -> None:
    """Serve models until SIGINT or SIGTERM.

    Args:
        configs: The models.
        host: Address to listen on; the default keeps other machines out.
        port: Port of REST; 0 for any free one, which is printed.
        grpc_port: Port of gRPC; 0 for any free one, which is printed, None for REST
            alone.
        batching: How requests are put together; None for the defaults.
        poll_seconds: Seconds between two looks at the folders for new versions; 0
            looks at the start only.
        config_file: The file that `configs` come from, to be watched.
        config_content: What it held when `configs` were read from it, so that the
            first look changes nothing where the file is still the same.
        config_file_seconds: Seconds between two looks at it; 0 looks at it no more.
        metrics_path: Path of the metrics for Prometheus; None for none.
        tls: Keys and certificates of both ports; None for ports without TLS.
        access: Checks the bearer token of each request; None lets everybody in.
        max_body_bytes: Longest REST body that is accepted.
        max_pixels: Width times height above which a picture is refused.
        timeout_seconds: How long a prediction over REST may take. Over gRPC the client
            says.
        max_message_bytes: Longest gRPC message in both directions.
        max_concurrent_calls: gRPC calls that are taken at one time.

    Raises:
        PortInUseError: Another program listens on a port.
        FileNotFoundError: There is no exported model.
        ValueError: A model cannot be loaded, or an argument is out of range.
    """
    monitoring = None if metrics_path is None else Monitoring()
    observer = RequestObserver(monitoring)
    is_guarded = (
        is_loopback(host)
        or access is not None
        or (tls is not None and tls.client_verify)
    )
    parameters = batching or BatchingParameters()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(open_socket(host, port))
        scheduler = BatchScheduler(
            parameters, on_batch=_on_batch(monitoring, parameters)
        )
        predictor = Predictor(scheduler, max_pixels=max_pixels)
        watched = WatchedModels(
            configs,
            poll_seconds=poll_seconds,
            on_warmed_up=_on_warmed_up(monitoring),
        )
        app = create_app(
            watched.served,
            predictor,
            max_body_bytes=max_body_bytes,
            timeout_seconds=timeout_seconds,
            access=access,
            observer=observer,
            metrics_path=metrics_path,
        )
        # Left from the last line up: gRPC first, since its calls need all the others.
        # What has not ended by then is refused, and ends with the process.
        stop = _Stop(limits.GRACE_SECONDS)
        stack.callback(lambda: watched.close(stop.seconds_left()))
        stack.callback(lambda: predictor.close(stop.seconds_left()))
        watch = None
        if config_file is not None and config_file_seconds > 0:
            watch = ConfigWatch(
                config_file, config_file_seconds, watched.reload, applied=config_content
            )
            stack.callback(lambda: watch.close(stop.seconds_left()))
        grpc_server = None
        if grpc_port is not None:
            grpc_server = stack.enter_context(
                GrpcServer(
                    watched.served,
                    predictor,
                    host=host,
                    port=grpc_port,
                    reload=functools.partial(_reload, watched, is_guarded),
                    access=access,
                    observer=observer,
                    credentials=None if tls is None else grpc_credentials(tls),
                    max_message_bytes=max_message_bytes,
                    max_concurrent_calls=max_concurrent_calls,
                )
            )
            grpc_server.start()
        watched.start()
        url = url_of(listener, is_secure=tls is not None)
        for name in watched.served.names():
            versions = sorted(watched.served.available_versions(name))
            print(
                f"Serving version {', '.join(map(str, versions))} of {name} at "
                f"{url}/v1/models/{name}",
                flush=True,
            )
        if grpc_server is not None:
            grpc_server.ready()
            print(f"Serving by gRPC at {grpc_server.address}", flush=True)
        if watch is not None:
            watch.start()

        def on_stop() -> None:
            seconds = stop.seconds_left()
            if grpc_server is not None:
                grpc_server.drain(seconds)

        serve(
            [(app, listener)],
            tls=None if tls is None else ssl_context_for_uvicorn(tls),
            on_stop=on_stop,
        )


class _Stop:
    """The time that all parts of the server together have to stop.

    Args:
        seconds: From the first call of `seconds_left` on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

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
