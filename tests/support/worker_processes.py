"""Processes that work together: none outlives the test, and none is waited for long."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_addresses(count):
    """Find loopback addresses that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()


def run_together(arguments, environments, timeout=240):
    """Run `python *arguments` once with each environment, all at the same time.

    Args:
        arguments: Arguments of Python.
        environments: Variables that each process has beside those of this one.
        timeout: Seconds after which all are killed.

    Returns:
        What each printed.

    Raises:
        AssertionError: One failed, or time was up; with the number and the standard
            error of the process. The others wait for it, so they are killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, f"out-{i}") for i in range(len(environments))]
        errors = [Path(folder, f"err-{i}") for i in range(len(environments))]
        processes = []
        try:
            for out, err, environment in zip(
                outputs, errors, environments, strict=True
            ):
                with out.open("w") as stdout, err.open("w") as stderr:
                    process = subprocess.Popen(
                        [sys.executable, *arguments],
                        cwd=ROOT,
                        env={**os.environ, **environment},
                        stdout=stdout,
                        stderr=stderr,
                        start_new_session=True,
                    )
                processes.append(process)
            problem = _first_problem(processes, timeout)
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if problem is not None:
            number, what = problem
            text = errors[number].read_text(errors="replace")[-4000:]
            raise AssertionError(f"Process {number} {what}. It wrote:\n{text}")
        return [out.read_text() for out in outputs]


def _first_problem(processes, timeout):
    """Wait; return the process that failed or hung, and how. None if all is well."""
    end = time.monotonic() + timeout
    while True:
        codes = [process.poll() for process in processes]
        for number, code in enumerate(codes):
            if code not in (None, 0):
                return number, f"ended with exit code {code}"
        if None not in codes:
            return None
        if time.monotonic() > end:
            return codes.index(None), f"was not done after {timeout} seconds"
        time.sleep(0.05)
