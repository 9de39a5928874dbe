"""The endpoint: as a user starts it, in a process of its own, or in this one."""

import contextlib
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import uvicorn

from tests.support.running_server import running_uvicorn

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running_endpoint(*options, seconds=60):
    """Start it on free ports; yields `process`, `url`, `grpc` and `lines` (its log)."""
    command = [sys.executable, "-m", "serving", "run", "--port", "0"]
    command += ["--grpc-port", "0", *map(str, options)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    lines = []
    told = queue.Queue()

    def read():
        for line in process.stdout:
            lines.append(line)
            told.put(line)
        told.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        found = {"url": None, "grpc": None}
        while None in found.values():
            line = told.get(timeout=seconds)
            assert line is not None, f"it did not start: {''.join(lines)}"
            if match := re.match(r"Serving version .* at (https?://[^/]+)/", line):
                found["url"] = match[1]
            if match := re.match(r"Serving by gRPC at (\S+)", line):
                found["grpc"] = match[1]
        yield SimpleNamespace(process=process, lines=lines, **found)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
            reader.join(timeout=10)
            process.stdout.close()


@contextlib.contextmanager
def endpoint_here(**options):
    """Run the endpoint in this process, on free ports; yields its `url` and `grpc`.

    Args:
        options: Fields of `ServerOptions`.
    """
    from serving.endpoint.options import ServerOptions
    from serving.endpoint.run import opened
    from serving.web.timeouts import PromptH11Protocol
    from serving.web.tls import ssl_context_for_uvicorn

    with opened(ServerOptions(port=0, grpc_port=0, **options)) as endpoint:
        tls = endpoint.tls and ssl_context_for_uvicorn(endpoint.tls)
        config = uvicorn.Config(
            endpoint.app,
            http=PromptH11Protocol,
            ws="none",
            access_log=False,
            log_config=None,
            ssl_context_factory=tls and (lambda *_: tls),
        )
        with running_uvicorn(config, endpoint.listener):
            yield SimpleNamespace(url=endpoint.url, grpc=endpoint.grpc_server.address)
