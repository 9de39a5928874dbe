"""The endpoint as a user starts it: `python -m serving run`, a process of its own."""

import contextlib
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

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
