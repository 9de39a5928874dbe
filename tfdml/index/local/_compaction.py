"""Building an index again in the background, once enough of it has changed."""

import logging
import threading
from collections.abc import Callable

from tfdml.index.rows import Snapshot

_LOGGER = logging.getLogger(__name__)

# Of rows added since the last build, a share of all; comparing with a row costs about
# as much as a search of a hundred thousand does.
_TAIL_SHARE = 20
_TAIL_LEAST = 2_000
_TAIL_MOST = 20_000
_REMOVED_SHARE = 5
# Comparisons with such rows for each row that there is: building takes as long, so an
# index that is only searched has not lost more than that when it is built again, and
# a program that searches a little does not wait for it.
_COMPARED = 5_000


class Compaction:
    """Has an index built again in a thread when it is worth it.

    A program that ends waits for it: a thread that is stopped inside ScaNN could crash
    it. After a failure, searches and changes go on with what there is; the next try
    comes when twice as much has changed.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failed_with = 0
        self._compared = 0
        self._starting = threading.Lock()

    def is_due(self, state: Snapshot) -> bool:
        """Whether enough has changed, more than at the last failure."""
        return _is_worthwhile(state) and _changed(state) >= 2 * self._failed_with

    def searched(
        self,
        state: Snapshot,
        queries: int,
        latest: Callable[[], Snapshot],
        compact: Callable[[], None],
    ) -> None:
        """Consider it, if searches have been slower for long.

        Args:
            state: What was searched.
            queries: How many queries there were.
            latest: As in `consider`.
            compact: As in `consider`.
        """
        self._compared += queries * _changed(state)
        if self._compared > _COMPARED * state.rows:
            self._compared = 0
            self.consider(latest, compact)

    def consider(
        self, latest: Callable[[], Snapshot], compact: Callable[[], None]
    ) -> None:
        """Start, if enough has changed and no other runs.

        Args:
            latest: Returns what the index holds.
            compact: Builds it again. Neither is kept: an index that nobody holds goes
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
                _LOGGER.warning("The index cannot be built again now: %s.", error)
            else:
                self._thread = thread

    def run(self, latest: Callable[[], Snapshot], compact: Callable[[], None]) -> None:
        """Have it built again at once, if enough has changed; see `consider`."""
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
            while _is_worthwhile(latest()):
                compact()
        except Exception:
            self._failed_with = changed
            _LOGGER.exception("The index cannot be built again, and stays as it is.")
        else:
            self._failed_with = 0

    def wait(self) -> None:
        """Wait for one that is running."""
        if self._thread is not None:
            self._thread.join()


def _changed(state: Snapshot) -> int:
    return (state.rows - state.base) + (state.rows - state.count)


def _is_worthwhile(state: Snapshot) -> bool:
    tail, removed = state.rows - state.base, state.rows - state.count
    most = min(max(_TAIL_LEAST, state.base // _TAIL_SHARE), _TAIL_MOST)
    return tail > most or _REMOVED_SHARE * removed > max(state.rows, _TAIL_LEAST)
