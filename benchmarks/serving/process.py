"""Run the endpoint as a process that is measured: start, memory, CPU, stop."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
NAME = "bench"
"""Name of the model in the addresses."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES = 2**20


class ServerProcess:
    """`python -m serving run` on free loopback ports.

    Attributes:
        rest_address: Host and port of the REST server.
        grpc_address: Host and port of the gRPC server.
        started: When it was started, by `time.perf_counter`.

    Args:
        base_path: Folder of numbered versions, or a `models.config` that names `NAME`.
        options: Further options of the command.
        ports: The REST and the gRPC port.
    """

    def __init__(
        self, base_path: Path, options: Sequence[str], ports: tuple[int, int]
    ) -> None:
        self.rest_address, self.grpc_address = (f"127.0.0.1:{p}" for p in ports)
        # A pipe would need a reader, which takes CPU for each request that is logged.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `wait`)
        self._read = 0
        self.started = time.perf_counter()
        models = ["--model-name", NAME, "--model-base-path", str(base_path)]
        if base_path.is_file():
            models = ["--model-config-file", str(base_path)]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "serving", "run", "--port", str(ports[0])),
                *("--grpc-port", str(ports[1]), *models, *options),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def new_lines(self) -> list[str]:
        """Return the lines that it has printed since this was called last."""
        if self._output.closed:
            return []
        data = os.pread(self._output.fileno(), _MOST_BYTES, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def wait_until_available(self, seconds: float = 180) -> None:
        """Wait until a version of the model is available.

        Raises:
            RuntimeError: The process ended, or the time passed.
        """
        deadline = time.perf_counter() + seconds
        while not self.is_available():
            if self._process.poll() is not None:
                said = "\n".join(self.new_lines()[-20:])
                raise RuntimeError(
                    f"The server ended with status {self._process.returncode}:\n{said}"
                )
            if time.perf_counter() > deadline:
                raise RuntimeError(f"The server was not ready in {seconds} s.")
            time.sleep(0.02)

    def is_available(self) -> bool:
        """Return whether the model is AVAILABLE by its status over REST."""
        url = f"http://{self.rest_address}/v1/models/{NAME}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return b"AVAILABLE" in reply.read()
        except (urllib.error.URLError, OSError):
            return False

    def cpu_seconds(self) -> float:
        """CPU time that the process has used, all threads together."""
        fields = self._file("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_bytes(self) -> int:
        """Memory that the process has in use now."""
        return int(self._file("statm").split()[1]) * _PAGE

    def open_files(self) -> int:
        """File descriptors that are open, sockets among them."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def _file(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text(encoding="utf-8")

    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL and return at once."""
        self._process.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the process and return its status."""
        status = self._process.wait()
        self._output.close()
        return status

    def stop(self, seconds: float = 40) -> int:
        """Send SIGTERM, wait, and return the exit status."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self.wait()

    def __enter__(self) -> Self:
        """Return the process itself; the end of the block stops it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the process."""
        self.stop()


def free_ports() -> tuple[int, int]:
    """Find two ports that nobody listens on."""
    with socket.socket() as one, socket.socket() as other:
        for found in (one, other):
            found.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@contextlib.contextmanager
def running_server(
    base_path: Path, options: Sequence[str] = ()
) -> Iterator[ServerProcess]:
    """Start the endpoint, yield it when it is available, stop it at the end."""
    with ServerProcess(base_path, options, free_ports()) as server:
        server.wait_until_available()
        yield server
