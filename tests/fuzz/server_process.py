"""The endpoint as a process of its own, so that a crash of it is seen."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[2]

START_SECONDS = 120
ANSWER_SECONDS = 20
"""Every request, good or bad, must have its answer within this time."""

MOST_NEW_MEMORY = 512 * 2**20
"""Bytes that the process may take beyond what it took when it had warmed up."""


class ServerProcess:
    """`python -m serving run` on free loopback ports.

    Args:
        name: Name of the model.
        base_path: Folder of its versions.
        check: Makes a good request of the process and checks the answer.
        options: Further options of the command.
    """

    def __init__(
        self,
        name: str,
        base_path: Path,
        check: Callable[["ServerProcess"], None],
        options: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.port, self.grpc_port = _free_ports(2)
        self._check = check
        self._command = [
            *(sys.executable, "-m", "serving", "run"),
            *("--model-name", name, "--model-base-path", str(base_path)),
            *("--port", str(self.port), "--grpc-port", str(self.grpc_port)),
            *options,
        ]
        self._last_lines: list[str] = []
        self._requests = 0
        self.start()

    @property
    def url(self) -> str:
        """Address of the model."""
        return f"http://127.0.0.1:{self.port}/v1/models/{self.name}"

    def start(self) -> None:
        """Start the process and wait until it answers rightly."""
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        # A pipe that nobody reads would stop the process.
        self._reader = threading.Thread(
            target=self._read, args=[self._process.stdout], daemon=True
        )
        self._reader.start()
        try:
            self._wait_until_right()
        except BaseException:
            self.stop()
            raise
        self._memory = self.peak_memory()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._reader.join()

    def revive(self) -> None:
        """Start it again if an earlier request, which has been told of, ended it."""
        if self._process.poll() is not None:
            self.start()

    def check_alive(self, request: object) -> None:
        """Fail if the process has ended, takes too much memory or, now and then, if a
        good request is not answered rightly.

        Args:
            request: What was sent last, for the error.
        """
        code = self._process.poll()
        assert code is None, f"exit code {code} after {_short(request)}"
        grown = self.peak_memory() - self._memory
        if grown > MOST_NEW_MEMORY:
            self.stop()
            raise AssertionError(f"{grown >> 20} MiB more after {_short(request)}")
        self._requests += 1
        if self._requests % 10 == 0:
            self.check_good_request()

    def check_good_request(self) -> None:
        """Fail if a good request is not answered rightly."""
        assert self._process.poll() is None, f"it ended: {self._last_lines}"
        self._check(self)

    def peak_memory(self) -> int:
        """Return the most memory that the process has had, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def _wait_until_right(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_available():
            assert time.monotonic() < deadline, f"no start: {self._last_lines}"
            assert self._process.poll() is None, f"no start: {self._last_lines}"
            time.sleep(0.05)
        for _ in range(5):
            self._check(self)

    def _is_available(self) -> bool:
        try:
            response = httpx2.get(self.url, timeout=ANSWER_SECONDS, trust_env=False)
        except httpx2.TransportError:
            return False
        return response.status_code == 200 and "AVAILABLE" in response.text

    def _read(self, lines) -> None:
        with lines:
            for line in lines:
                self._last_lines.append(line)
                del self._last_lines[:-100]


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _short(request: object) -> str:
    text = repr(request)
    return text if len(text) < 3000 else f"{text[:3000]}... ({len(text)} characters)"
