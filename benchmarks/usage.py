"""Watch how busy the processor and the GPU are while others work."""

import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

_EVERY = 0.1  # seconds
_QUERY = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


def gpu_count() -> int:
    """Return how many GPUs `nvidia-smi` lists; 0 where there is no `nvidia-smi`."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    run = subprocess.run(
        [program, "--list-gpus"], capture_output=True, text=True, check=False
    )
    return len(run.stdout.splitlines()) if run.returncode == 0 else 0


class Usage:
    """Samples of the use of the processor and of the first GPU, while it is entered."""

    def __init__(self) -> None:
        # A day of samples at most.
        self._cpu: deque[tuple[float, float]] = deque(maxlen=10**6)
        self._gpu: deque[tuple[float, float]] = deque(maxlen=10**6)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Begin to watch."""
        program = shutil.which("nvidia-smi")
        if program is not None and gpu_count():
            self._program = subprocess.Popen(
                [program, "--id=0", *_QUERY, "--loop-ms=100"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._begin(self._watch_gpu, self._program.stdout)
        self._begin(self._watch_cpu)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._over.set()
        if self._program is not None:
            self._program.kill()
            self._program.wait()
        for thread in self._threads:
            thread.join()
        if self._program is not None and self._program.stdout is not None:
            self._program.stdout.close()

    def during(self, begin: float, end: float, cores: int) -> dict[str, float]:
        """Return the mean use between two times.

        Args:
            begin: As `time.time()` tells it.
            end: Likewise.
            cores: How many were to be used.

        Returns:
            `cpu_util`, a share of these cores, and `gpu_util`, the share of the time in
            which the GPU ran something; one that was not sampled is left out.
        """
        cpu, gpu = _mean(self._cpu, begin, end), _mean(self._gpu, begin, end)
        found = {} if cpu is None else {"cpu_util": round(cpu / cores, 3)}
        return found if gpu is None else {**found, "gpu_util": round(gpu, 3)}

    def _begin(self, watch: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=watch, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _watch_cpu(self) -> None:
        import psutil

        psutil.cpu_percent(percpu=True)
        while not self._over.wait(_EVERY):
            busy = sum(psutil.cpu_percent(percpu=True)) / 100
            self._cpu.append((time.time(), busy))

    def _watch_gpu(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.strip().isdigit():
                self._gpu.append((time.time(), int(line) / 100))


def _mean(
    samples: deque[tuple[float, float]], begin: float, end: float
) -> float | None:
    values = [value for at, value in list(samples) if begin <= at <= end]
    return sum(values) / len(values) if values else None
