"""New versions under load: failed requests, and time until the first new answer."""

import argparse
import collections
import functools
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.cases import difference
from benchmarks.serving.clients import Clients
from benchmarks.serving.model import MODELS, export_model, photographs, references
from benchmarks.serving.process import ServerProcess, running_server
from benchmarks.serving.requests import (
    PREDICT,
    REST_PATH,
    grpc_embeddings,
    predict_message,
    rest_body,
    rest_embeddings,
)
from benchmarks.session import machine, write

_IMAGES = 4
_MOST_EXAMPLES = 20
_LOOK_SECONDS = 0.01


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--seconds", type=float, default=300, help="of load (300)")
    add("--every", type=float, default=20, help="seconds between versions (20)")
    add("--clients", type=int, default=8, help="half of them by gRPC (8)")
    add("--model", choices=MODELS, default="demo")


class Answers:
    """What the clients got; used from several threads.

    An even version has other weights than an odd one, so that an embedding tells which
    of the two answered. gRPC also says the number.

    Args:
        expected: The embeddings of the even and of the odd versions,
            `[2, images, dimension]`.
    """

    def __init__(self, expected: np.ndarray) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self.newest = 1
        """The highest version that lies in the base path."""
        self.first: dict[tuple[str, int], float] = {}
        """When each protocol first got an answer of a version."""
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    def add(
        self, protocol: str, image: int, row: np.ndarray, version: int | None = None
    ) -> None:
        """Count an answer, or a failure if it belongs to no version that can answer.

        Args:
            protocol: `"grpc"` or `"rest"`.
            image: Which was asked for.
            row: The embedding that came.
            version: Which version gRPC says it is.
        """
        differences = [difference(row, wanted[image]) for wanted in self._expected]
        if None not in differences:
            even, odd = differences
            self.fail(f"{protocol}: an embedding of no version: {even}, {odd}")
            return
        parity = differences.index(None)
        newest = self.newest
        number = newest - (newest - parity) % 2 if version is None else version
        if number % 2 != parity:
            self.fail(f"{protocol}: the embedding is not of version {number}")
        elif number not in (newest, newest - 1):
            self.fail(f"{protocol}: version {number} answered, the newest is {newest}")
        else:
            with self._lock:
                self.counts[protocol] += 1
                self.first.setdefault((protocol, number), time.perf_counter())

    def fail(self, what: str) -> None:
        """Count a failure."""
        with self._lock:
            self.counts["failed"] += 1
            if len(self.failures) < _MOST_EXAMPLES:
                self.failures.append(what)


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if a request failed or a version never came.

    The exit status does not judge memory.
    """
    about = machine()
    print(about, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = photographs(_IMAGES)
        for seed, parity in enumerate(("even", "odd")):
            export_model(options.model, folder / parity, seed, images)
        expected = np.stack(
            [references(folder / parity, images) for parity in ("even", "odd")]
        )
        base = folder / "models"
        base.mkdir()
        shutil.copytree(folder / "odd", base / "1")
        with running_server(base) as server:
            record = swap(server, folder, images, expected, options, about)
    write(options.out, {**about, **record})
    for failure in record["failures"]:
        print(f"failed: {failure}")
    for protocol in ("grpc", "rest"):
        times = record[f"{protocol}_seconds"]
        print(
            f"{protocol}: {record[f'{protocol}_answers']} answers; the first one of a "
            f"new version came {np.median(times):.2f} s after its rename (median of "
            f"{len(times)}; {min(times):.2f} to {max(times):.2f})"
            if times
            else f"{protocol}: no new version answered"
        )
    memory = record["megabytes"]
    print(
        f"{record['swaps']} new versions in {record['seconds']:.0f} s, "
        f"{record['failed']} failed requests, {record['missed']} versions that never "
        f"answered\nmemory {memory[0]:.1f} MB before the first, {max(memory):.1f} MB "
        f"at most, {memory[-1]:.1f} MB before the end"
    )
    return int(record["failed"] > 0 or record["missed"] > 0)


def swap(
    server: ServerProcess,
    folder: Path,
    images: Sequence[bytes],
    expected: np.ndarray,
    options: argparse.Namespace,
    about: dict[str, str],
) -> dict[str, Any]:
    """Put the load on a server, and new versions under it.

    Args:
        server: What is asked; it serves version 1 of `models`.
        folder: Folder that holds `models`, `even` and `odd`.
        images: Encoded images.
        expected: Their embeddings by the two, `[2, images, dimension]`.
        options: Those of the command.
        about: What is written with each new version.

    Returns:
        The record of the whole.
    """
    answers = Answers(expected)
    stop = threading.Event()
    threads = [
        threading.Thread(
            target=work,
            args=(("grpc", "rest")[number % 2], server, images, answers, stop),
            daemon=True,
        )
        for number in range(options.clients)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    memory: list[float] = []
    waits: dict[str, list[float]] = {"grpc": [], "rest": []}
    version = 1
    missed = 0
    try:
        while version * options.every < options.seconds:
            due = start + version * options.every
            time.sleep(max(0.0, due - time.perf_counter()))
            memory.append(server.resident_bytes() / 2**20)
            version += 1
            renamed = _put(folder, version, answers)
            until = min(due + options.every, start + options.seconds)
            came = _wait(answers, version, renamed, until)
            missed += len(came) < len(waits)
            for protocol, seconds in came.items():
                waits[protocol].append(seconds)
            shutil.rmtree(folder / "models" / str(version - 1))
            look = {
                "benchmark": "serving_swap_version",
                "version": version,
                "resident_bytes": server.resident_bytes(),
                "failed": answers.counts["failed"],
                **{f"{protocol}_seconds": took for protocol, took in came.items()},
            }
            write(options.out, {**about, **look})
            print(json.dumps(look), flush=True)
        time.sleep(max(0.0, start + options.seconds - time.perf_counter()))
        memory.append(server.resident_bytes() / 2**20)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return {
        "benchmark": "serving_swap",
        "model": options.model,
        "seconds": time.perf_counter() - start,
        "clients": options.clients,
        "swaps": version - 1,
        "missed": missed,
        "failed": answers.counts["failed"],
        "failures": answers.failures,
        "megabytes": memory,
        **{f"{protocol}_answers": answers.counts[protocol] for protocol in waits},
        **{f"{protocol}_seconds": times for protocol, times in waits.items()},
    }


def _put(folder: Path, version: int, answers: Answers) -> float:
    """Copy a version beside the base path and rename it; returns when that was."""
    copy = folder / "copy"
    shutil.copytree(folder / ("even", "odd")[version % 2], copy)
    answers.newest = version
    copy.rename(folder / "models" / str(version))
    return time.perf_counter()


def _wait(
    answers: Answers, version: int, renamed: float, until: float
) -> dict[str, float]:
    """Wait for the first answers; returns their seconds since the rename."""
    keys = {protocol: (protocol, version) for protocol in ("grpc", "rest")}
    while time.perf_counter() < until:
        if all(key in answers.first for key in keys.values()):
            break
        time.sleep(_LOOK_SECONDS)
    return {
        protocol: answers.first[key] - renamed
        for protocol, key in keys.items()
        if key in answers.first
    }


def work(
    protocol: str,
    server: ServerProcess,
    images: Sequence[bytes],
    answers: Answers,
    stop: threading.Event,
) -> None:
    """Ask for one image after the other; whatever goes wrong is a failed request.

    Args:
        protocol: `"grpc"` or `"rest"`.
        server: What is asked.
        images: Encoded images.
        answers: Where each answer is counted.
        stop: Ends it.
    """
    with Clients(server.rest_address, server.grpc_address) as clients:
        asks = (_grpc_asks if protocol == "grpc" else _rest_asks)(clients, images)
        while not stop.is_set():
            for image, ask in enumerate(asks):
                try:
                    rows, version = ask()
                    (row,) = rows
                    answers.add(protocol, image, row, version)
                except Exception as error:  # whatever it is, it is no answer
                    answers.fail(f"{protocol}: {type(error).__name__}: {error}")


_Ask = Callable[[], tuple[np.ndarray, int | None]]


def _grpc_asks(clients: Clients, images: Sequence[bytes]) -> list[_Ask]:
    from tensorflow_serving.apis.predict_pb2 import PredictResponse

    def ask(message: bytes) -> tuple[np.ndarray, int | None]:
        code, reply = clients.grpc(PREDICT, message)
        if code != "OK":
            raise RuntimeError(f"{code} {reply[:300]!r}")
        response = PredictResponse.FromString(reply)
        return grpc_embeddings(response), response.model_spec.version.value

    messages = [predict_message({"image_bytes": [data]}) for data in images]
    return [functools.partial(ask, m.SerializeToString()) for m in messages]


def _rest_asks(clients: Clients, images: Sequence[bytes]) -> list[_Ask]:
    headers = {"Content_Type": "application/json"}

    def ask(body: bytes) -> tuple[np.ndarray, int | None]:
        status, reply = clients.http("POST", REST_PATH, body, **headers)
        if status != 200:
            raise RuntimeError(f"{status} {reply[:300]!r}")
        return rest_embeddings(reply), None

    return [functools.partial(ask, rest_body([data])) for data in images]
