"""Run measurements in processes of their own, each in its environment."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers import ROOT
from benchmarks.usage import Usage


def interpreter_with(peer: str, *packages: str) -> str | None:
    """Return a Python that has a peer, or None.

    Args:
        peer: Its environment is `.peers/PEER`, as `make bench-peers` creates it.
        packages: What this interpreter must have to do without that environment.
    """
    own = ROOT / ".peers" / peer / "bin" / "python"
    if own.exists():
        return str(own)
    if all(importlib.util.find_spec(package) for package in packages):
        return sys.executable
    return None


def records_of(
    command: Sequence[str],
    usage: Usage,
    cores: int,
    *,
    seconds: float = 1800,
    variables: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Run a command and yield what it tells by `benchmarks.rounds`, as it comes.

    Where it fails, or does not end in time, the last record has an `error`. It and all
    that it started has ended when this has.

    Args:
        command: The command and its arguments.
        usage: Adds to each round how busy the machine was.
        cores: How many it uses, unless a record says otherwise.
        seconds: After these it is killed.
        variables: Environment variables that differ from those of this process.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # so that all that it starts can be ended
        )
        limit = threading.Timer(seconds, _kill, [process])
        limit.start()
        try:
            for line in process.stdout or ():
                if line[:1] != "{":
                    continue
                record = json.loads(line)
                if "begin" in record:
                    span = record.pop("begin"), record.pop("end")
                    record |= usage.during(*span, record.get("cores", cores))
                yield record
            if process.wait():
                errors.seek(0)
                yield {"error": _last_line(errors.read(), process.returncode)}
        finally:
            limit.cancel()
            _kill(process)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _last_line(text: str, status: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines or [f"exit status {status}"])[-1][:300]


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
