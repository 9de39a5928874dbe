"""Measure an engine that has built its index."""

import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.peak import added_memory, resident_bytes
from benchmarks.search.engines import Built, scann_alone

K = 10
BATCH = 1_000
_LADDER_SECONDS = 0.3


class Measuring:
    """Answers the requests of a `Worker`, whose methods say what they are.

    Args:
        built: The engine.
        queries: float32 `[Q, D]`.
        true: Positions of the true neighbors `[Q, 10]`.
    """

    def __init__(self, built: Built, queries: np.ndarray, true: np.ndarray) -> None:
        self._built = built
        self._queries = queries
        self._true = true
        self._setting: Mapping[str, Any] = {}

    def answer(self, do: str, **asked: Any) -> Any:
        """Return the answer to a request, in JSON types."""
        requests: dict[str, Callable[..., Any]] = {
            "choose": self._choose,
            "measure": self._measure,
            "overhead": self._overhead,
            "save": self._save,
        }
        return requests[do](**asked)

    def _choose(self, target: float) -> dict[str, Any] | None:
        found = []
        for ladder in self._built.ladders:
            for setting in ladder:
                recall = self._recall(setting)
                if recall["recall_at_10"] >= target:
                    self._setting = setting
                    rate = self._measure(BATCH, _LADDER_SECONDS)["rate"]
                    found.append((rate, setting, recall))
                    break
        if not found:
            return None
        _, self._setting, recall = max(found, key=lambda one: one[0])
        return {"setting": self._setting, **recall}

    def _recall(self, setting: Mapping[str, Any]) -> dict[str, float]:
        found = self._built.search(self._queries, K, setting)
        hits = (found[:, :, None] == self._true[:, None, :]).any(axis=2)
        first = found[:, 0] == self._true[:, 0]
        return {
            "recall_at_10": float(hits.mean()),
            "recall_at_1": float(first.mean()),
        }

    def _measure(self, batch: int, seconds: float) -> dict[str, Any]:
        def search(start: int) -> None:
            part = self._queries[start : start + batch]
            self._built.search(part, K, self._setting)

        return self._timed(search, batch, seconds)

    def _timed(
        self, search: Callable[[int], None], batch: int, seconds: float
    ) -> dict[str, float]:
        """Time calls with one batch of queries after the other."""
        starts = range(0, max(1, len(self._queries) - batch + 1), batch)
        times: list[float] = []
        stop = time.perf_counter() + seconds
        cpu = time.process_time()
        while not times or time.perf_counter() < stop:
            before = time.perf_counter()
            search(starts[len(times) % len(starts)])
            times.append(time.perf_counter() - before)
        cpu = time.process_time() - cpu
        size = min(batch, len(self._queries))
        # Single searches last so short that the fastest of thousands is chance.
        took = min(times) if batch > 1 else sorted(times)[len(times) // 2]
        return {"rate": size / took, "cpu_us": 1e6 * cpu / (size * len(times))}

    def _overhead(self, seconds: float) -> dict[str, float]:
        if self._built.about["settings"]["engine"] != "scann":
            return {}
        ours, alone = self._built.search, scann_alone(self._built.index, K)
        times: dict[str, list[float]] = {"ours": [], "alone": []}
        cpus: dict[str, float] = dict.fromkeys(times, 0.0)
        calls = {"ours": lambda q: ours(q, K, {}), "alone": alone}
        queries = self._queries[:BATCH]
        stop = time.perf_counter() + seconds
        while not times["ours"] or time.perf_counter() < stop:
            for name, call in calls.items():
                start, cpu = time.perf_counter(), time.process_time()
                call(queries)
                times[name].append(time.perf_counter() - start)
                cpus[name] += time.process_time() - cpu
        return {
            "overhead": min(times["ours"]) / min(times["alone"]) - 1,
            "overhead_cpu": cpus["ours"] / cpus["alone"] - 1,
        }

    def _save(self) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            before, start = resident_bytes(), time.perf_counter()
            _, added = added_memory(lambda: self._built.index.save(folder))
            seconds = time.perf_counter() - start
        return {"save_seconds": seconds, "save_peak": (before + added) / before}
