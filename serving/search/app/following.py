"""Follow the folder of an index when it is switched to another model and index."""

import logging
import threading
from collections.abc import Callable

from ...client import EndpointError
from ..gallery.image_search import ImageSearch
from ..gallery.pair import Pair, pair_in
from ..gallery.upgrade_folder import is_pause_wanted

_log = logging.getLogger(__name__)


class PairFollower:
    """Replaces a search when the folder of its index holds another pair.

    The new pair is opened beside the old one, which answers until the new one can:
    where the endpoint does not serve the new model yet, or the index cannot be read,
    the old pair goes on, and the follower tries again.

    Args:
        search: The search at the beginning.
        open_search: Opens the pair that the folder holds.
        use: Takes the new search; it may raise an `OSError`, and is called again then.
        seconds: From one look to the next, above 0.
    """

    def __init__(
        self,
        search: ImageSearch,
        open_search: Callable[[], ImageSearch],
        use: Callable[[ImageSearch], None],
        *,
        seconds: float = 1.0,
    ) -> None:
        self._search = search
        self._folder = search.index.stats().details["folder"]
        self._is_own = False
        self._open = open_search
        self._use = use
        self._seconds = seconds
        self._reported = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def start(self) -> None:
        """Begin to look at the folder, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Look no more; a pair that is being opened is waited for."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def close_search(self) -> None:
        """Close the search in use, unless it is the one of the beginning."""
        if self._is_own:
            self._search.close()

    def look_now(self) -> bool:
        """Look at the folder once.

        Returns:
            Whether the search is the one of the folder.
        """
        try:
            found = pair_in(self._folder)
            if found == self._search.pair:
                self._give_way()
            else:
                self._replace(found)
        except (OSError, ValueError, EndpointError) as error:
            if str(error) != self._reported:
                self._reported = str(error)
                _log.warning("The gallery stays as it is: %s", error)
            return False
        self._reported = ""
        return True

    def _give_way(self) -> None:
        """Let an upgrade make its last step while nobody changes the gallery."""
        editor = self._search.editor
        if editor is None:
            return
        if is_pause_wanted(self._folder):
            editor.pause()
        else:
            editor.resume()

    def _replace(self, found: Pair) -> None:
        if self._search.editor is not None:
            self._search.editor.pause()
        new = self._open()
        try:
            self._use(new)
        except BaseException:
            new.close()
            raise
        self._search, self._is_own = new, True
        _log.info("The gallery is searched with %s.", found)

    def _run(self) -> None:
        while not self._end.wait(self._seconds):
            try:
                self.look_now()
            except Exception:  # the folder must be watched as long as the page serves
                _log.exception("Following the gallery failed.")
