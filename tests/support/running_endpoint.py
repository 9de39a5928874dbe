"""The endpoint: as a user starts it, in a process of its own, or in this one."""

import contextlib
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import uvicorn

from tests.support.running_process import running_process, stop
from tests.support.running_server import running_uvicorn


@contextlib.contextmanager
def running_endpoint(*options):
    """Start it on free ports; yields `process`, `url`, `grpc` and `lines` (its log)."""
    command = [sys.executable, "-m", "serving", "run", "--port", "0"]
    command += ["--grpc-port", "0", *options]
    with running_process(command, stderr=subprocess.STDOUT) as process:
        lines = []
        found = {"url": None, "grpc": None}
        while None in found.values():
            lines.append(process.stdout.readline())
            assert lines[-1], f"it did not start: {''.join(lines)}"
            if match := re.match(r"Serving version .* at (https?://[^/]+)/", lines[-1]):
                found["url"] = match[1]
            if match := re.match(r"Serving by gRPC at (\S+)", lines[-1]):
                found["grpc"] = match[1]
        # What nobody reads would hold it up once the pipe is full.
        reader = threading.Thread(target=lambda: lines.extend(process.stdout))
        reader.start()
        try:
            yield SimpleNamespace(process=process, lines=lines, **found)
        finally:
            stop(process)
            reader.join()


@contextlib.contextmanager
def endpoint_here(**options):
    """Run the endpoint in this process, on free ports; yields its `url` and `grpc`.

    Args:
        options: Fields of `ServerOptions`.
    """
    from serving.endpoint.options import ServerOptions
    from serving.endpoint.run import opened
    from serving.web.http_connection import connection_of_server
    from serving.web.tls import ssl_context_for_uvicorn

    with opened(ServerOptions(port=0, grpc_port=0, **options)) as endpoint:
        tls = endpoint.tls and ssl_context_for_uvicorn(endpoint.tls)
        config = uvicorn.Config(
            endpoint.app,
            http=connection_of_server(),
            ws="none",
            timeout_keep_alive=600,  # as in `running`
            access_log=False,
            log_config=None,
            ssl_context_factory=tls and (lambda *_: tls),
        )
        with running_uvicorn(config, endpoint.listener):
            yield SimpleNamespace(url=endpoint.url, grpc=endpoint.grpc_server.address)
