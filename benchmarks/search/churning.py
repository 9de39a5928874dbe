"""Change an index in one thread while others search it."""

import argparse
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peak import resident_bytes
from benchmarks.search.ledger import Ledger, Tally
from benchmarks.session import write

K = 10
_MOST_AT_ONCE = 500
_SIZES = (1, 1, 1, 10, 100)


class Churning:
    """A writer, threads that search, and looks at the index while the writer waits.

    Args:
        index: A `LocalIndex`.
        ledger: What it holds.
        queries: Unit vectors to search with.
        options: Those of the command.
        about: What is written with each look.

    Attributes:
        tally: The answers.
        looks: Records of the looks, the first before all changes, the last after them.
        seconds: How long each `add` and `remove` took.
        made: How many items were added and removed, by the same names.
        compactions: How long each one that was made took.
        changing_seconds: From the first change to the look after the last.
        took: The same with the last compaction and the look after it.
    """

    def __init__(
        self,
        index: Any,
        ledger: Ledger,
        queries: np.ndarray,
        options: argparse.Namespace,
        about: dict[str, Any],
    ) -> None:
        self._index = index
        self._ledger = ledger
        self._queries = queries
        self._options = options
        self._about = about
        self._draw = np.random.default_rng(options.seed)
        self._stop = threading.Event()
        self._next = options.items
        self.tally = Tally()
        self.looks: list[dict[str, Any]] = []
        self.seconds: dict[str, list[float]] = {"add": [], "remove": []}
        self.made = {"add": 0, "remove": 0}
        self.compactions: list[float] = []
        self.changing_seconds = self.took = 0.0
        self._failures = _Failures()
        self._compact = index.compact
        index.compact = self._timed_compact

    @property
    def failed_compactions(self) -> int:
        """How many compactions failed in their thread."""
        return self._failures.count

    def run(self) -> None:
        """Make all changes and a last compaction, and search as long."""
        threads = [
            threading.Thread(target=self._search, args=(number,), daemon=True)
            for number in range(self._options.searchers)
        ]
        logger = logging.getLogger("tfdml.index")
        logger.addHandler(self._failures)
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        try:
            self._change(start)
            self.changing_seconds = time.perf_counter() - start
            self._end(start)
        finally:
            self.took = time.perf_counter() - start
            self._stop.set()
            for thread in threads:
                thread.join()
            logger.removeHandler(self._failures)

    def _change(self, start: float) -> None:
        options = self._options
        steps = plan(options.adds, options.removes, self._draw)
        looks = np.linspace(0, len(steps), options.moments + 1).round().tolist()
        for place, (do, count) in enumerate(steps):
            if place in looks:
                self._look(start)
            due = start + place / len(steps) * options.seconds
            time.sleep(max(0.0, due - time.perf_counter()))
            try:
                (self._add if do == "add" else self._remove)(count)
            except Exception as error:  # what the index now holds is not known
                self.tally.failed("exception", f"{do}: {type(error).__name__}: {error}")
                break
        self._look(start)

    def _end(self, start: float) -> None:
        """Build again what was added last, so that recall is that of a whole build."""
        try:
            self._index.compact()
        except Exception as error:
            self.tally.failed("exception", f"compact: {type(error).__name__}: {error}")
        self._look(start)

    def _add(self, count: int) -> None:
        ids = np.arange(self._next, self._next + count)
        self._next += count
        self._ledger.adding(ids)
        start = time.perf_counter()
        self._index.add(self._ledger.rows[ids], ids)
        self._note("add", count, start)

    def _remove(self, count: int) -> None:
        ids = self._draw.choice(self._ledger.ids(), count, replace=False)
        start = time.perf_counter()
        self._index.remove(ids)
        self._note("remove", count, start)
        self._ledger.removed(ids)

    def _note(self, name: str, count: int, start: float) -> None:
        self.seconds[name].append(time.perf_counter() - start)
        self.made[name] += count

    def _search(self, number: int) -> None:
        draw = np.random.default_rng([self._options.seed, number])
        while not self._stop.is_set():
            asked = draw.integers(len(self._queries), size=draw.choice(_SIZES))
            queries = self._queries[asked]
            start = time.perf_counter()
            try:
                ids, scores = self._index.search(queries, K)
                end = time.perf_counter()
                wrong = self._ledger.wrong(queries, K, ids, scores, start, end)
            except Exception as error:  # whatever it is, it is no answer
                self.tally.failed("exception", f"{type(error).__name__}: {error}")
            else:
                self.tally.answered(len(queries), end - start, wrong)

    def _look(self, start: float) -> None:
        """Measure recall and compare the ids, while the writer waits."""
        size = len(self._queries)
        asked = self._draw.choice(size, self._options.sample, replace=False)
        queries = self._queries[asked]
        found = self._index.search(queries, K).ids
        held, wanted = self._index.ids, self._ledger.ids()
        details = self._index.stats().details
        look = {
            "benchmark": "search_churn_moment",
            "seconds": time.perf_counter() - start,
            "items": len(held),
            "recall": float(self._ledger.recall(queries, found).mean()),
            # Ids that came twice are also ids that should not be there.
            "lost": len(np.setdiff1d(wanted, held)),
            "left": len(held) - len(np.intersect1d(held, wanted)),
            "since_build": {name: details[name] for name in ("added", "removed")},
            "compactions": len(self.compactions),
            "method": details["settings"]["method"],
            "resident_bytes": resident_bytes(),
            **{name: self.tally.counts[name] for name in ("queries", "wrong")},
        }
        self.looks.append(look)
        write(self._options.out, {**self._about, **look})
        print(look, flush=True)

    def _timed_compact(self) -> None:
        start = time.perf_counter()
        self._compact()
        self.compactions.append(time.perf_counter() - start)


class _Failures(logging.Handler):
    """Counts what the index logs: a compaction in its thread that failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count it."""
        self.count += 1


def plan(
    adds: int, removes: int, generator: np.random.Generator
) -> Sequence[tuple[str, int]]:
    """Draw the order of the changes.

    Args:
        adds: How many items are added.
        removes: How many are removed.
        generator: What draws.

    Returns:
        "add" or "remove" and of how many items, 1 to 500, in the order to make them.
    """
    steps = []
    for name, left in (("add", adds), ("remove", removes)):
        while left:
            count = min(left, int(generator.integers(1, _MOST_AT_ONCE + 1)))
            steps.append((name, count))
            left -= count
    return [steps[place] for place in generator.permutation(len(steps))]
