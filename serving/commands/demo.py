"""Serve the endpoint and the search page together: the last step of `make demo`."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from ..client import EndpointClient, EndpointError
from ..search.app import app as page
from ..web.sockets import open_socket

MODEL_NAME = "demo"


def run(
    run_folder: str | PathLike[str],
    index_folder: str | PathLike[str],
    model_base_path: str | PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    endpoint_port: int = 8501,
) -> None:
    """Serve a model, and the search page of an index made with it, until interrupted.

    The endpoint runs in its own process, on the loopback address.

    Args:
        run_folder: Folder that `tfdml fit` wrote; its metrics are printed.
        index_folder: Folder that `tfdml index build` wrote.
        model_base_path: Folder with one numbered folder per version.
        host: Address of the page.
        port: Port of the page.
        endpoint_port: Port of the endpoint.

    Raises:
        RuntimeError: The endpoint did not start; it has printed why.
        ValueError: The index, or the model, cannot be used.
        OSError: A file is missing, or a port is in use.
    """
    results = json.loads((Path(run_folder) / "metrics.json").read_text("utf-8"))
    # Another endpoint on the port would answer instead of ours.
    for host_of_port, used in (("127.0.0.1", endpoint_port), (host, port)):
        open_socket(host_of_port, used).close()
    with _endpoint(model_base_path, endpoint_port) as url:
        print(_measured(results), flush=True)
        page.run(index_folder, url, host=host, port=port)


@contextlib.contextmanager
def _endpoint(model_base_path: str | PathLike[str], port: int) -> Iterator[str]:
    command = [sys.executable, "-m", "tfdml", "serve", "--model-name", MODEL_NAME]
    command += ["--model-base-path", str(model_base_path), "--port", str(port)]
    command += ["--no-grpc"]  # the page speaks REST
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}/v1/models/{MODEL_NAME}"
    try:
        _wait_until_it_answers(process, url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 120
    with EndpointClient(url) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError("The endpoint did not start; see its error above.")
            with contextlib.suppress(EndpointError):
                client.metadata()
                return
            time.sleep(0.2)
    raise RuntimeError("The endpoint did not answer within 120 seconds.")


def _measured(results: dict) -> str:
    """Describe the effect of training, from the run's `metrics.json`."""
    named = {
        "before training": results["test_before_training"],
        "after training": results["test_after_training"],
        "raw pixels": results["test_of_raw_32x32_pixels"],
    }
    if not all(named.values()):
        return "The run has no test classes: nothing was measured."
    values = ", ".join(
        f"{100 * metrics['precision_at_1']:.1f}% {name}"
        for name, metrics in named.items()
    )
    return f"Precision@1 on {results['classes']['test']} unseen classes: {values}."
