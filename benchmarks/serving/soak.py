"""Mixed load of which some requests are bad: wrong answers, and growth of memory."""

import argparse
import collections
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.cases import Case, bad_cases, good_cases
from benchmarks.serving.clients import Clients
from benchmarks.serving.model import export_model, photographs, references
from benchmarks.serving.process import ServerProcess, running_server
from benchmarks.session import machine, write

_IMAGES = 16
_MOST_EXAMPLES = 20


def add_options(add: Any) -> None:
    """Add the options of the command."""
    add("--minutes", type=float, default=30, help="of load (30)")
    add("--clients", type=int, default=8, help="at one time (8)")
    add("--bad-share", type=float, default=0.05, help="of the requests (0.05)")
    add("--interval", type=float, default=10, help="seconds between looks (10)")
    add("--warm-share", type=float, default=0.15, help="of the time, not used (0.15)")
    add("--seed", type=int, default=0, help="of what is asked (0)")


class Tally:
    """Counts answers by kind of request; used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked: collections.Counter[str] = collections.Counter()
        self.unexpected: collections.Counter[str] = collections.Counter()
        self.examples: list[str] = []

    def add(self, name: str, wrong: str | None) -> None:
        """Count a request.

        Args:
            name: Its kind.
            wrong: What came instead of the expected answer, or None.
        """
        with self._lock:
            self.asked[name] += 1
            if wrong is not None:
                self.unexpected[name] += 1
                if len(self.examples) < _MOST_EXAMPLES:
                    self.examples.append(f"{name}: {wrong}")


def run(options: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if an answer was not the expected one."""
    about = machine()
    print(about, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        version = Path(folder) / "models" / "1"
        export_model("demo", version)
        good, bad = _cases(version)
        with running_server(version.parent) as server:
            record = soak(server, good, bad, options, about)
            status = server.stop()
    record["exit_status"] = status
    write(options.out, {**about, **record})
    for example in record["examples"]:
        print(f"unexpected: {example}")
    print(
        f"{record['requests']} requests ({record['bad_requests']} bad) of "
        f"{record['kinds']} kinds in {record['seconds']:.0f} s, "
        f"{record['unexpected']} unexpected answers\n"
        f"memory {record['warm_megabytes']:.1f} MB after the warm-up, "
        f"{record['last_megabytes']:.1f} MB at the end: "
        f"{record['growth_of_line']:+.2%} by the line of least squares, "
        f"{record['growth_to_last']:+.2%} from first to last\n"
        f"{record['open_files']} open files, {record['more_open_files']:+} since then; "
        f"exit status at SIGTERM {status}"
    )
    return int(record["unexpected"] > 0)


def _cases(version: Path) -> tuple[list[Case], list[Case]]:
    import tensorflow as tf

    encoded = photographs(_IMAGES)
    expected = references(version, encoded)
    model = tf.saved_model.load(str(version))
    size = model.signatures["tensors"].structured_input_signature[1]["images"].shape[1]
    images = np.random.default_rng(0).integers(0, 256, (8, size, size, 3), "uint8")
    rows = model.signatures["tensors"](images=tf.constant(images))["embedding"].numpy()
    return good_cases(encoded, expected, images, rows), bad_cases(encoded[0])


def soak(
    server: ServerProcess,
    good: Sequence[Case],
    bad: Sequence[Case],
    options: argparse.Namespace,
    about: dict[str, str],
) -> dict[str, Any]:
    """Put the load on a server and watch it.

    Args:
        server: What is asked.
        good: Kinds of requests, drawn alike.
        bad: The same of `--bad-share` of all requests.
        options: Those of the command.
        about: What is written with each look at the server.

    Returns:
        The record of the whole.
    """
    tally = Tally()
    seconds = 60 * options.minutes
    start = time.perf_counter()

    def work(number: int) -> None:
        draw = random.Random(f"{options.seed} {number}")  # noqa: S311
        with Clients(server.rest_address, server.grpc_address) as clients:
            while time.perf_counter() - start < seconds:
                case = draw.choice(bad if draw.random() < options.bad_share else good)
                try:
                    wrong = case.ask(clients, draw)
                except Exception as error:  # whatever it is, it is no answer
                    wrong = f"{type(error).__name__}: {error}"
                tally.add(case.name, wrong)

    threads = [
        threading.Thread(target=work, args=(n,), daemon=True)
        for n in range(options.clients)
    ]
    for thread in threads:
        thread.start()
    looks: list[dict[str, float]] = []

    def look() -> None:
        looks.append(
            {
                "seconds": time.perf_counter() - start,
                "resident_bytes": server.resident_bytes(),
                "open_files": server.open_files(),
                "cpu_seconds": server.cpu_seconds(),
                "requests": tally.asked.total(),
                "unexpected": tally.unexpected.total(),
            }
        )
        write(options.out, {**about, "benchmark": "serving_soak_look", **looks[-1]})
        print("  ".join(f"{k}={v:.6g}" for k, v in looks[-1].items()), flush=True)

    look()
    while (rest := start + seconds - time.perf_counter()) > 0 and server.is_running():
        time.sleep(min(options.interval, rest))
        if server.is_running():
            look()
    if not server.is_running():
        raise RuntimeError(f"The server ended with status {server.wait()} under load.")
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    warm = [x for x in looks if x["seconds"] >= options.warm_share * seconds] or looks
    memory = [x["resident_bytes"] for x in warm]
    names = {case.name for case in bad}
    return {
        "benchmark": "serving_soak",
        "seconds": took,
        "clients": options.clients,
        "requests": tally.asked.total(),
        "bad_requests": sum(n for name, n in tally.asked.items() if name in names),
        "kinds": len(tally.asked),
        "unexpected": tally.unexpected.total(),
        "unexpected_by_kind": dict(tally.unexpected),
        "examples": tally.examples,
        "asked_by_kind": dict(sorted(tally.asked.items())),
        "warm_megabytes": memory[0] / 2**20,
        "last_megabytes": memory[-1] / 2**20,
        "growth_of_line": growth([x["seconds"] for x in warm], memory),
        "growth_to_last": memory[-1] / memory[0] - 1,
        "open_files": warm[-1]["open_files"],
        "more_open_files": warm[-1]["open_files"] - warm[0]["open_files"],
    }


def growth(times: Sequence[float], values: Sequence[float]) -> float:
    """Return by what share the least-squares line through values grows.

    Args:
        times: When each value was taken.
        values: Positive numbers.

    Returns:
        Rise of the line from the first to the last time, divided by its value at the
        first; 0 for fewer than two values.
    """
    if len(times) < 2:
        return 0.0
    slope, start = np.polyfit(np.subtract(times, times[0]), values, 1)
    return float(slope * (times[-1] - times[0]) / start)
