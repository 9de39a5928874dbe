"""Single-image requests a second, against the SavedModel called directly."""

import argparse
import contextlib
import http.client
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.serving.cases import difference
from benchmarks.serving.floor import Floor
from benchmarks.serving.latency import latency
from benchmarks.serving.load import Load, has_h2load, put_load
from benchmarks.serving.model import MODELS, export_model, photographs, references
from benchmarks.serving.process import ServerProcess, running_server
from benchmarks.serving.requests import (
    PREDICT,
    REST_PATH,
    grpc_embeddings,
    predict_message,
    rest_body,
    rest_embeddings,
    rest_post,
)
from benchmarks.session import machine, write

SERVERS = {"batching": (), "no-batching": ("--no-batching",)}
_BATCHES = (1, 2, 4, 8, 16, 32)
_THREADS = sorted({1, 2, os.cpu_count() or 1})
_CANDIDATES = 3
_PAUSE_SECONDS = 0.001
_ALONE = {
    "batch 1": ("of_batch_1", "one by one", 0.0),
    "batch 1, after a pause": (
        "of_batch_1_paused",
        "one by one after a pause",
        _PAUSE_SECONDS,
    ),
}
"""Floors of one client: key of the ratio, its words in the table, seconds of pause."""
_IMAGES = 5


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--models", nargs="+", choices=MODELS, default=["demo", "mobilenet"])
    add("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    add("--clients", nargs="+", type=int, default=[1, 4, 16, 64])
    add("--protocols", nargs="+", choices=("grpc", "rest"), default=["grpc", "rest"])
    add("--rounds", type=int, default=5, help="of everything (5)")
    add("--seconds", type=float, default=5, help="of each measurement (5)")
    add("--batches", nargs="+", type=int, default=_BATCHES, help="of the floor")
    tool = "h2load" if has_h2load() else "python"
    add("--client", choices=("h2load", "python"), default=tool, help=f"({tool})")
    add("--batching-parameters-file", help="of the server with batching")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if a request failed."""
    about = {**machine(), "client": options.client}
    print(about, flush=True)
    errors = 0
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            records = _measure(name, Path(folder), about, options)
        errors += sum(record.get("errors", 0) for record in records)
        for row in summary(records):
            write(options.out, {**about, **row})
    return int(errors > 0)


def _measure(
    name: str, folder: Path, about: dict[str, str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    version = folder / "models" / "1"
    export_model(name, version)
    files = []
    for number, data in enumerate(photographs(_IMAGES)):
        files.append(folder / f"{number}.jpg")
        files[-1].write_bytes(data)
    records: list[dict[str, Any]] = []

    def note(**record: Any) -> None:
        record = {"benchmark": "serving_throughput", "model": name, **record}
        records.append(record)
        write(options.out, {**about, **record})
        print("  ".join(f"{k}={_short(v)}" for k, v in record.items()), flush=True)

    def note_times(times: Sequence[float], **record: Any) -> None:
        note(**record, **latency(times))
        records[-1] |= {"times_ms": times}  # for the summary, not for the file

    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(Floor(version, files))
        servers = {}
        for kind in options.servers:
            extra = [*SERVERS[kind]]
            if kind == "batching" and options.batching_parameters_file:
                extra += ["--batching-parameters-file"]
                extra += [options.batching_parameters_file]
            servers[kind] = stack.enter_context(running_server(version.parent, extra))
        candidates = _candidates(floor, note, options)
        expected = references(version, [file.read_bytes() for file in files])
        lengths = {
            kind: [
                _check(server, file.read_bytes(), row)
                for file, row in zip(files, expected, strict=True)
            ]
            for kind, server in servers.items()
        }
        for number in range(options.rounds):
            which = number % len(files)
            image = files[which].read_bytes()
            for clients in options.clients:
                about_round = {"clients": clients, "round": number}
                for record in _floors(floor, candidates, which, clients, options):
                    note(server="floor", **about_round, **record)
                for protocol in options.protocols:
                    for kind, server in servers.items():
                        found, times = _served(
                            server,
                            protocol,
                            image,
                            clients,
                            lengths[kind][which],
                            options,
                        )
                        note_times(
                            times,
                            server=kind,
                            protocol=protocol,
                            **about_round,
                            **found,
                        )
    return records


def _candidates(
    floor: Floor, note: Any, options: argparse.Namespace
) -> list[tuple[int, int]]:
    """Try batch sizes and threads; returns the three pairs of the highest rates."""
    rates: dict[tuple[int, int], float] = {}
    for batch in options.batches:
        for threads in _THREADS:
            found = floor.measure(batch, threads, options.seconds)
            rates[batch, threads] = found["rate"]
            note(server="floor", floor="search", batch=batch, threads=threads, **found)
    return sorted(rates, key=lambda pair: -rates[pair])[:_CANDIDATES]


def _floors(
    floor: Floor,
    candidates: Sequence[tuple[int, int]],
    image: int,
    clients: int,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Measure the floors of a round.

    One measurement may be low by chance, and a low floor flatters the server. So all
    candidates are measured, and the largest rate is the floor.
    """
    found = [
        {
            "floor": "candidate",
            "batch": batch,
            "threads": threads,
            **floor.measure(batch, threads, options.seconds, image),
        }
        for batch, threads in candidates
    ]
    max(found, key=lambda record: record["rate"])["floor"] = "best"
    if clients == 1:
        for kind, (_, _, pause) in _ALONE.items():
            one = floor.measure(1, 1, options.seconds, image, pause)
            found.append({"floor": kind, "batch": 1, "threads": 1, **one})
    return found


def _check(server: ServerProcess, image: bytes, expected: np.ndarray) -> int:
    """Compare one answer of each protocol; returns the length of that of gRPC.

    Raises:
        RuntimeError: An answer is not the embedding of the image.
    """
    from tensorflow_serving.apis import predict_pb2

    with grpc.insecure_channel(server.grpc_address) as channel:
        message = predict_message({"image_bytes": [image]}).SerializeToString()
        reply = channel.unary_unary(PREDICT)(message, timeout=60)
    found = grpc_embeddings(predict_pb2.PredictResponse.FromString(reply))
    connection = http.client.HTTPConnection(server.rest_address, timeout=60)
    with contextlib.closing(connection):
        status, body = rest_post(connection, rest_body([image]))
    if status != 200:
        raise RuntimeError(f"The server answered {status}: {body[:500]!r}.")
    for protocol, rows in (("gRPC", found), ("REST", rest_embeddings(body))):
        if wrong := difference(rows, expected[np.newaxis]):
            raise RuntimeError(f"The answer over {protocol} is {wrong}.")
    return len(reply)


def _served(
    server: ServerProcess,
    protocol: str,
    image: bytes,
    clients: int,
    reply_bytes: int,
    options: argparse.Namespace,
) -> tuple[dict[str, Any], Sequence[float]]:
    grpc_asked = protocol == "grpc"
    cpu = server.cpu_seconds()
    load: Load = put_load(
        protocol,
        server.grpc_address if grpc_asked else server.rest_address,
        PREDICT if grpc_asked else REST_PATH,
        (
            predict_message({"image_bytes": [image]}).SerializeToString()
            if grpc_asked
            else rest_body([image])
        ),
        clients=clients,
        seconds=options.seconds,
        reply_bytes=reply_bytes if grpc_asked else None,
        tool=options.client,
    )
    cpu = server.cpu_seconds() - cpu
    used = cpu + load.client_cpu_seconds
    record = {
        "rate": load.rate,
        "errors": load.errors,
        "cpu_ms": 1000 * cpu / max(load.answers, 1),
        "client_cpu_ms": 1000 * load.client_cpu_seconds / max(load.answers, 1),
        "client_share": load.client_cpu_seconds / used,
    }
    return record, load.times_ms


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print a table of medians over the rounds, and return its rows.

    A ratio is taken within a round, to the floor that was measured just before. "of
    floor by CPU" compares the CPU time of an image in the floor's process with that of
    a request in the server's: what the rates would be without the clients' share.

    The times of all rounds are pooled. With one client there are two floors more: the
    direct call of one image in a tight loop, and the same after a pause of 1 ms, as a
    server whose only client takes its time has between two requests.
    """
    floors = {
        (r["floor"], r["clients"], r["round"]): r
        for r in records
        if r["server"] == "floor" and r["floor"] not in ("search", "candidate")
    }
    cases: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for record in records:
        if record["server"] != "floor":
            case = record["server"], record["protocol"], record["clients"]
            cases.setdefault(case, []).append(record)
    best = statistics.median(
        floor["rate"] for key, floor in floors.items() if key[0] == "best"
    )
    shown = [f"\nfloor: {best:.1f} images a second"]
    for kind, (_, words, _) in _ALONE.items():
        alone = [floor["rate"] for key, floor in floors.items() if key[0] == kind]
        if alone:
            shown.append(f"{statistics.median(alone):.1f} {words}")
    print(", ".join(shown))
    print(
        "| server | clients | a second | of floor | spread | of floor by CPU | ", end=""
    )
    print("samples | p50 ms | p99 ms | errors | client's CPU |")
    print("| --- |" + 10 * " ---: |")
    rows = []
    for (server, protocol, clients), rounds in cases.items():
        beside = [floors["best", clients, r["round"]] for r in rounds]
        pairs = list(zip(rounds, beside, strict=True))
        of_floor = [r["rate"] / floor["rate"] for r, floor in pairs]
        of_cpu = [floor["cpu_ms"] / r["cpu_ms"] for r, floor in pairs]
        row = {
            "benchmark": "serving_throughput_summary",
            "model": rounds[0].get("model"),
            "server": server,
            "protocol": protocol,
            "clients": clients,
            "rounds": len(rounds),
            "of_floor": statistics.median(of_floor),
            "of_floor_least": min(of_floor),
            "of_floor_most": max(of_floor),
            "of_floor_by_cpu": statistics.median(of_cpu),
            "errors": sum(r["errors"] for r in rounds),
        }
        one = ""
        if clients == 1:
            parts = []
            for kind, (key, words, _) in _ALONE.items():
                row[key] = statistics.median(
                    r["rate"] / floors[kind, 1, r["round"]]["rate"] for r in rounds
                )
                parts.append(f"{row[key]:.0%} of {words}")
            one = f" ({', '.join(parts)})"
        for key in ("rate", "cpu_ms", "client_share"):
            row[key] = statistics.median(r[key] for r in rounds)
        row |= latency([took for r in rounds for took in r["times_ms"]])
        rows.append(row)
        print(
            f"| {protocol}, {server} | {clients} | {row['rate']:.1f} | "
            f"{row['of_floor']:.0%}{one} | {min(of_floor):.0%} to {max(of_floor):.0%} "
            f"| {row['of_floor_by_cpu']:.0%} | {row['samples']} | "
            f"{_tenths(row['p50_ms'])} | {_tenths(row['p99_ms'])} | {row['errors']} | "
            f"{row['client_share']:.1%} |"
        )
    print(flush=True)
    return rows


def _tenths(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
