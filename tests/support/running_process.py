"""A process that ends with its test, whatever becomes of that."""

import contextlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running_process(command, **options):
    """Start a command in the root of the repository; yields its `Popen`.

    Its output is read as text. At the end of the block it is asked to stop.
    """
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, text=True, cwd=ROOT, **options
    )
    with process:
        try:
            yield process
        finally:
            stop(process)


def stop(process):
    """Ask a process to stop and wait until it has; kill it if it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
