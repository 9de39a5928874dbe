"""Rebuild an index in the background once enough of it has changed."""

import logging
import threading
from collections.abc import Callable

from tfdml.index.local._limits import Limits
from tfdml.index.rows import Snapshot

_LOGGER = logging.getLogger(__name__)


class Compaction:
    """Rebuilds an index in a thread when that is worthwhile.

    A program that ends waits for it: a thread that is stopped inside ScaNN could crash
    the program. After a failure, searches and changes go on with the old searcher; the
    next attempt comes when twice as much has changed.

    Args:
        limits: When it is worthwhile.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._thread: threading.Thread | None = None
        self._failed_with = 0
        self._compared = 0
        self._starting = threading.Lock()

    def is_due(self, state: Snapshot) -> bool:
        """Return whether enough has changed, and more than at the last failure."""
        return self._is_worthwhile(state) and _changed(state) >= 2 * self._failed_with

    def searched(
        self,
        state: Snapshot,
        queries: int,
        latest: Callable[[], Snapshot],
        compact: Callable[[], None],
    ) -> None:
        """Consider a rebuild if searches have been slower for long.

        Args:
            state: What was searched.
            queries: How many queries there were.
            latest: As in `consider`.
            compact: As in `consider`.
        """
        self._compared += queries * _changed(state)
        if self._compared > self._limits.compared * state.rows:
            self._compared = 0
            self.consider(latest, compact)

    def consider(
        self, latest: Callable[[], Snapshot], compact: Callable[[], None]
    ) -> None:
        """Start a rebuild if enough has changed and none is running.

        Args:
            latest: Returns what the index holds.
            compact: Rebuilds it. Neither is kept: an index without references is freed
                at once, and its lock with it.
        """
        state = latest()
        if not self.is_due(state):
            return
        with self._starting:
            if self._thread is not None and self._thread.is_alive():
                return
            thread = threading.Thread(
                target=self._run,
                args=(_changed(state), latest, compact),
                name="tfdml-index-compaction",
            )
            try:
                thread.start()
            except RuntimeError as error:  # too many threads, or the program ends
                _LOGGER.warning("The index cannot be rebuilt now: %s.", error)
            else:
                self._thread = thread

    def run(self, latest: Callable[[], Snapshot], compact: Callable[[], None]) -> None:
        """Rebuild at once if enough has changed; see `consider`."""
        self.wait()
        state = latest()
        if self.is_due(state):
            self._run(_changed(state), latest, compact)

    def _run(
        self,
        changed: int,
        latest: Callable[[], Snapshot],
        compact: Callable[[], None],
    ) -> None:
        try:
            compact()
            # Much may have changed meanwhile, and no further change may follow.
            while self._is_worthwhile(latest()):
                compact()
        except Exception:
            self._failed_with = changed
            _LOGGER.exception("The index cannot be rebuilt, and stays as it is.")
        else:
            self._failed_with = 0

    def wait(self) -> None:
        """Wait for a rebuild that is running."""
        if self._thread is not None:
            self._thread.join()

    def _is_worthwhile(self, state: Snapshot) -> bool:
        limits = self._limits
        tail, removed = state.rows - state.base, state.rows - state.count
        most = max(limits.tail_least, state.base // limits.tail_share)
        return tail > min(most, limits.tail_most) or (
            limits.removed_share * removed > max(state.rows, limits.tail_least)
        )


def _changed(state: Snapshot) -> int:
    return (state.rows - state.base) + (state.rows - state.count)
