"""Measure at intervals how many of the true neighbors the searches find."""

import collections
import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gallery.image_search import ImageSearch

_log = logging.getLogger(__name__)


class RecallWatch:
    """Keeps the last queries of each gallery, and compares them with all its items.

    Its thread runs until `close`. Queries are kept in memory alone.

    Args:
        searches: The galleries by name.
        seconds: From one measurement to the next, above 0.
        queries: How many are kept of each gallery, at least 1.
    """

    def __init__(
        self,
        searches: Mapping[str, ImageSearch],
        *,
        seconds: float = 600.0,
        queries: int = 100,
    ) -> None:
        self._searches = searches
        self._seconds = seconds
        self._kept: dict[str, collections.deque[NDArray[Any]]] = {
            name: collections.deque(maxlen=queries) for name in searches
        }
        self._new = dict.fromkeys(searches, 0)
        self._recalls: dict[str, float] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="recall", daemon=True)

    @property
    def recalls(self) -> dict[str, float]:
        """The mean recall@10 that was measured last of each gallery, by name."""
        with self._lock:
            return dict(self._recalls)

    def keep(self, name: str, embedding: NDArray[Any]) -> None:
        """Keep a query of a gallery for the next measurement."""
        with self._lock:
            self._kept[name].append(embedding)
            self._new[name] += 1

    def forget(self, name: str) -> None:
        """Forget the queries of a gallery that another model and index replace."""
        with self._lock:
            self._kept[name].clear()
            self._new[name] = 0
            self._recalls.pop(name, None)

    def measure(self) -> None:
        """Measure each gallery that was searched since the last time."""
        for name, search in self._searches.items():
            with self._lock:
                queries = list(self._kept[name]) if self._new[name] else []
                self._new[name] = 0
            # A database has none: it would be busy with the comparison.
            measure = getattr(search.index, "measure_recall", None)
            if not queries or measure is None:
                continue
            # An index that keeps the first numbers also takes embeddings cut to them.
            width = min(map(len, queries))
            rows = np.stack([query[:width] for query in queries])
            try:
                recall = float(measure(rows).mean())
            except ValueError as error:  # such as of a gallery that is now empty
                _log.warning("The recall of %s was not measured: %s", name, error)
                continue
            with self._lock:
                self._recalls[name] = recall

    def start(self) -> None:
        """Begin to measure at intervals."""
        self._thread.start()

    def close(self) -> None:
        """Measure no more; a measurement that runs is not waited for."""
        self._end.set()

    def _watch(self) -> None:
        while not self._end.wait(self._seconds):
            self.measure()
