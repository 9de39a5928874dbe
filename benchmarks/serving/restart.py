"""Kill the process and start it again: time until it answers."""

import argparse
import http.client
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.cases import difference
from benchmarks.serving.clients import Clients
from benchmarks.serving.model import MODELS, export_model, photographs, references
from benchmarks.serving.process import NAME, ROOT, ServerProcess, free_ports
from benchmarks.serving.requests import (
    PREDICT,
    REST_PATH,
    grpc_embeddings,
    predict_message,
    rest_body,
    rest_embeddings,
)
from benchmarks.session import machine, write

_UNIT = ROOT / "serving" / "deployment" / "tfdml-endpoint.service"
_LOOK_SECONDS = 0.1  # to look more often takes CPU from the start
_LIMIT_SECONDS = 180
_MOST_LINES = 20
_PARTS = """
import sys, time
import tensorflow
import serving.endpoint.run
from serving.endpoint.models.servable import Servable
from serving.endpoint.warm_up import warm_up
imported = time.time()
servable = Servable("bench", 1, sys.argv[1])
loaded = time.time()
warm_up(servable, sys.argv[1])
print(imported, loaded, time.time())
"""
_STEPS = ("started", "grpc_status", "grpc_predict", "rest_status", "rest_predict")


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--times", type=int, default=5, help="that the process is killed (5)")
    add("--model", choices=MODELS, default="demo")


class Supervisor:
    """Starts the server again at once when it has ended.

    systemd's `Restart=always` does the same after the pause of `RestartSec`.

    Attributes:
        server: The process that runs now.
        started: How many were started.

    Args:
        base_path: Folder of numbered versions.
    """

    def __init__(self, base_path: Path) -> None:
        self._base_path = base_path
        self._ports = free_ports()
        self._stopping = threading.Event()
        self.started = 0
        self.server = self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _start(self) -> ServerProcess:
        server = ServerProcess(self._base_path, (), self._ports)
        self.started += 1
        return server

    def _supervise(self) -> None:
        while True:
            self.server.wait()
            if self._stopping.is_set():
                return
            self.server = self._start()

    def stop(self) -> None:
        """End the server for good."""
        self._stopping.set()
        self.server.stop()
        self._thread.join()


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if an answer was wrong."""
    about, pause = machine(), unit_pause()
    print(about, flush=True)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "models"
        images = photographs(4)
        export_model(options.model, base / "1", warm_up=images)
        expected = references(base / "1", images)[0]
        supervisor = Supervisor(base)
        try:
            supervisor.server.wait_until_available()
            for number in range(options.times):
                record = restart_times(supervisor, images[0], expected)
                record |= {"model": options.model, "number": number}
                record |= {"unit_pause_seconds": pause}
                records.append(record)
                write(options.out, {**about, **record})
                shown = (f"{step} {record[f'{step}_seconds']:.2f} s" for step in _STEPS)
                print(", ".join(shown), flush=True)
                for seconds, line in record["lines"]:
                    print(f"    {seconds:6.2f} s  {line}")
        finally:
            supervisor.stop()
        parts = [_parts(base / "1") for _ in range(options.times)]
    for record in parts:
        write(options.out, {**about, "benchmark": "serving_start_parts", **record})
    print("| seconds after the kill | median | least | most |")
    print("| --- | ---: | ---: | ---: |")
    for step in _STEPS:
        times = [record[f"{step}_seconds"] for record in records]
        print(
            f"| {step} | {statistics.median(times):.2f} | {min(times):.2f} | "
            f"{max(times):.2f} |"
        )
    print(
        f"Started again at once. {_UNIT.name} says RestartSec={pause:g}: under systemd "
        f"each comes {pause:g} s later."
    )
    print("| seconds of a start, each part by itself | median | least | most |")
    print("| --- | ---: | ---: | ---: |")
    for part in parts[0]:
        times = [record[part] for record in parts]
        print(
            f"| {part} | {statistics.median(times):.2f} | {min(times):.2f} | "
            f"{max(times):.2f} |"
        )
    return int(any(record["wrong"] for record in records))


def unit_pause() -> float:
    """Seconds that the systemd unit waits before it starts the server again.

    Raises:
        ValueError: The unit does not say it in seconds.
    """
    found = re.search(r"^RestartSec=([\d.]+)$", _UNIT.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{_UNIT.name} must say `RestartSec=` in seconds.")
    return float(found[1])


def _parts(version: Path) -> dict[str, float]:
    """Time the parts of a start in a process without sockets."""
    begin = time.time()
    run = subprocess.run(
        [sys.executable, "-c", _PARTS, str(version)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    imported, loaded, warm = map(float, run.stdout.split()[-3:])
    return {
        "import": imported - begin,
        "load": loaded - imported,
        "warm_up": warm - loaded,
    }


def restart_times(
    supervisor: Supervisor, image: bytes, expected: np.ndarray
) -> dict[str, Any]:
    """Kill the server, and ask its successor until it answers.

    Args:
        supervisor: Of a server that answers.
        image: What is asked for.
        expected: Its embedding.

    Returns:
        Seconds from the kill until the new process was started, until gRPC answered
        for the state of the model (in any state: what it needs is imported) and REST
        said that it is available, and until each embedded the image; `lines`, what
        the process printed until then, with seconds since the kill.

    Raises:
        RuntimeError: It did not answer within three minutes.
    """
    old, count = supervisor.server, supervisor.started
    times: dict[str, float] = {}
    wrong: list[str] = []
    begin = time.perf_counter()
    old.kill()
    while supervisor.started == count or supervisor.server is old:
        time.sleep(0.001)
    server = supervisor.server
    times["started"] = server.started - begin

    def ask_until(step: str, answers: Any) -> None:
        while step not in times and time.perf_counter() < begin + _LIMIT_SECONDS:
            with Clients(server.rest_address, server.grpc_address) as clients:
                try:
                    if (row := answers(clients)) is not None:
                        times[step] = time.perf_counter() - begin
                        if np.size(row) and difference(np.asarray(row), expected):
                            wrong.append(step)
                except (OSError, http.client.HTTPException):
                    pass
            time.sleep(_LOOK_SECONDS)

    asked = _questions(image)
    threads = [
        threading.Thread(target=ask_until, args=pair, daemon=True)
        for pair in asked.items()
    ]
    for thread in threads:
        thread.start()
    lines: list[tuple[float, str]] = []
    while True:
        answered = not any(thread.is_alive() for thread in threads)
        now = round(time.perf_counter() - begin, 2)
        lines += [
            (now, line[:200]) for line in server.new_lines() if "request_id" not in line
        ]
        if answered:
            break
        time.sleep(_LOOK_SECONDS / 2)
    if missing := [step for step in asked if step not in times]:
        raise RuntimeError(f"There was no answer in {_LIMIT_SECONDS} s: {missing}.")
    return {
        "benchmark": "serving_restart",
        **{f"{step}_seconds": seconds for step, seconds in times.items()},
        "wrong": wrong,
        "lines": lines[:_MOST_LINES],
    }


def _questions(image: bytes) -> dict[str, Any]:
    """Return what is asked; each returns None until there is an answer."""
    from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
    from tensorflow_serving.apis.predict_pb2 import PredictResponse

    status = GetModelStatusRequest()
    status.model_spec.name = NAME
    message = predict_message({"image_bytes": [image]}).SerializeToString()
    body = rest_body([image])
    nothing: Sequence[float] = ()

    def grpc_status(clients: Clients) -> Sequence[float] | None:
        path = "/tensorflow.serving.ModelService/GetModelStatus"
        code, _ = clients.grpc(path, status.SerializeToString())
        return nothing if code in ("OK", "NOT_FOUND") else None

    def grpc_predict(clients: Clients) -> np.ndarray | None:
        # To send the image to a server that loads would take CPU from it.
        if b"AVAILABLE" not in clients.http("GET", f"/v1/models/{NAME}")[1]:
            return None
        code, reply = clients.grpc(PREDICT, message)
        if code != "OK":
            return None
        return grpc_embeddings(PredictResponse.FromString(reply))[0]

    def rest_status(clients: Clients) -> Sequence[float] | None:
        code, reply = clients.http("GET", f"/v1/models/{NAME}")
        return nothing if code == 200 and b'"AVAILABLE"' in reply else None

    def rest_predict(clients: Clients) -> np.ndarray | None:
        code, reply = clients.http("POST", REST_PATH, body)
        return rest_embeddings(reply)[0] if code == 200 else None

    return {
        "grpc_status": grpc_status,
        "grpc_predict": grpc_predict,
        "rest_status": rest_status,
        "rest_predict": rest_predict,
    }
