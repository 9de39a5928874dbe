"""Run the search page as a process of its own."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LIMIT_SECONDS = 180
_STOP_SECONDS = 40


def build_index(images: Path, index: Path, model: Path) -> float:
    """Embed a folder of images and index it by `python -m serving index build`.

    Args:
        images: Folder of the images.
        index: Folder to write to.
        model: Base path of the exported model.

    Returns:
        Seconds that the process took.

    Raises:
        CalledProcessError: It failed; what it said was printed.
    """
    start = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "serving", "index", "build"),
            *(str(images), str(index), "--model", str(model)),
        ],
        cwd=ROOT,
        check=True,
    )
    return time.perf_counter() - start


@contextlib.contextmanager
def running_page(
    index: Path, endpoint_url: str, *options: str
) -> Iterator[tuple[str, int]]:
    """Run `python -m serving page`, and stop it at the end.

    Args:
        index: Folder of the index.
        endpoint_url: Address of the model.
        options: Further options.

    Yields:
        Its address, and the id of its process.

    Raises:
        RuntimeError: It ended, or did not start in three minutes.
    """
    # A pipe would need a reader, which takes CPU for each request that is logged.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "serving", "page", str(index)),
                *("--endpoint", endpoint_url, "--port", "0", *options),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield _address(process, output.fileno()), process.pid
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], output: int) -> str:
    """Wait for the line that says where the page is."""
    deadline = time.perf_counter() + _LIMIT_SECONDS
    while True:
        said = os.pread(output, 2**16, 0).decode("utf-8", "replace")
        if found := re.search(r"^Image search: (\S+)$", said, re.MULTILINE):
            return found[1]
        if process.poll() is not None:
            raise RuntimeError(f"The page ended with {process.returncode}:\n{said}")
        if time.perf_counter() > deadline:
            raise RuntimeError(f"The page did not start in {_LIMIT_SECONDS} s:\n{said}")
        time.sleep(0.05)
