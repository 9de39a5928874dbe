"""Run one engine in a process of its own, which builds and measures as asked.

    python -m benchmarks.search.worker ENGINE FOLDER THREADS LIKE

FOLDER holds the gallery, the queries and the true neighbors. LIKE is JSON that the
engine understands. After a first line about the build, each line of its input is a
request in JSON, and is answered with a line.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.peak import added_memory, resident_bytes
from benchmarks.search.engines import ENGINES, PEERS, load
from benchmarks.search.measuring import Measuring

ROOT = Path(__file__).parents[2]
PEER_PYTHON = ROOT / ".peers" / "search" / "bin" / "python"


class Worker:
    """The process, from the side that asks.

    Args:
        engine: Its name in `ENGINES`.
        folder: What `write_set` has written.
        threads: Threads of a batched search.
        like: What the engine is to be like.

    Attributes:
        built: `build_seconds` and `build_cpu_seconds`; `megabytes`, what the index
            takes, and `peak_megabytes`, what building it took, both above the gallery
            and the libraries; and what the engine says about itself.
    """

    built: dict[str, Any]

    def __init__(
        self, engine: str, folder: Path, threads: int, like: Mapping[str, Any]
    ) -> None:
        python = str(PEER_PYTHON) if engine in PEERS else sys.executable
        self._engine = engine
        self._process = subprocess.Popen(
            [
                *(python, "-m", "benchmarks.search.worker", engine, str(folder)),
                *(str(threads), json.dumps(like)),
            ],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.built = self._answer()
        except BaseException:
            self.__exit__()
            raise

    def choose(self, target: float) -> dict[str, Any] | None:
        """Choose the fastest setting that reaches a recall@10.

        Returns:
            `setting`, `recall_at_10` and `recall_at_1`; None where none reaches it.
        """
        return self._ask(do="choose", target=target)

    def measure(self, batch: int, seconds: float) -> dict[str, Any]:
        """Search for a while with the setting that was chosen.

        Returns:
            `rate`, queries a second of the fastest call; `cpu_us`, CPU time of a query.
        """
        return self._ask(do="measure", batch=batch, seconds=seconds)

    def measure_overhead(self, seconds: float) -> dict[str, Any]:
        """Compare the index with the ScaNN inside it; `tfdml` only.

        Returns:
            `overhead` and `overhead_cpu`, time of a call of 1,000 queries through the
            interface over that of ScaNN alone, less 1. Nothing where the index is so
            small that it does not search with ScaNN.
        """
        return self._ask(do="overhead", seconds=seconds)

    def measure_saving(self) -> dict[str, Any]:
        """Save the index; `tfdml` only.

        Returns:
            `save_seconds` and `save_peak`, peak memory of the process over what it had
            in use before.
        """
        return self._ask(do="save")

    def _ask(self, **request: Any) -> Any:
        if self._process.stdin is None:
            raise RuntimeError("The process has no pipes.")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            status = self._process.wait()
            raise RuntimeError(f"{self._engine} ended with status {status}.")
        return json.loads(line)

    def __enter__(self) -> Self:
        """Return the worker itself; the end of the block ends its process."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()  # waits, and closes the pipes


def main(arguments: list[str] | None = None) -> int:
    name, place, threads, like = sys.argv[1:] if arguments is None else arguments
    folder = Path(place)
    load(name)
    gallery, queries, true = (
        np.load(folder / f"{part}.npy") for part in ("gallery", "queries", "true")
    )
    before = resident_bytes()
    start, cpu = time.perf_counter(), time.process_time()
    built, peak = added_memory(
        lambda: ENGINES[name](gallery, int(threads), json.loads(like))
    )
    about = {
        "build_seconds": time.perf_counter() - start,
        "build_cpu_seconds": time.process_time() - cpu,
        "megabytes": (resident_bytes() - before) / 2**20,
        "peak_megabytes": peak / 2**20,
        **built.about,
    }
    print(json.dumps(about), flush=True)
    measuring = Measuring(built, queries, true)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measuring.answer(**asked)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
