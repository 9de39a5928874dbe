"""Follow a `models.config` that changes while the server runs."""

import logging
import threading
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from ...web.status import StatusError
from .config import ModelConfig, parse_model_configs

_log = logging.getLogger(__name__)


class ConfigWatch:
    """Reads a `models.config` again and again, and has the models changed with it.

    A file that is broken or cannot be followed is logged, and nothing changes. The last
    change wins: a file that stays the same does not undo a change by a request.

    Args:
        file: The file.
        seconds: Seconds between two looks, more than 0.
        reload: Changes the models: `WatchedModels.reload`.
        applied: What the file held when the models were made as it says; None if they
            were not. A file that still holds it at the first look changes nothing.
        retry_seconds: Seconds before a file that could not be followed is tried again
            unchanged, since a model may have been copied meanwhile.

    Raises:
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        file: str | PathLike[str],
        seconds: float,
        reload: Callable[[list[ModelConfig]], None],
        *,
        applied: bytes | None = None,
        retry_seconds: float = 60.0,
    ) -> None:
        if seconds <= 0:
            raise ValueError(f"`seconds` must be more than 0. Received: {seconds}.")
        if retry_seconds < 0:
            raise ValueError(
                f"`retry_seconds` must be at least 0. Received: {retry_seconds}."
            )
        self._file = Path(file)
        self._seconds = seconds
        self._reload = reload
        self._retry_seconds = retry_seconds
        self._applied = applied
        self._failed: bytes | None = None
        self._next_try = 0.0
        self._reported = ""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to look at the file, in a thread of its own."""
        self._thread = threading.Thread(
            target=self._run, name="config-watch", daemon=True
        )
        self._thread.start()

    def look_now(self) -> bool:
        """Look at the file once.

        Returns:
            Whether the models follow it now.
        """
        try:
            content = self._file.read_bytes()
        except OSError as error:
            self._report(error)
            return False
        if content == self._applied:
            return True
        if content == self._failed and time.monotonic() < self._next_try:
            return False
        try:
            self._reload(parse_model_configs(content, self._file))
        except (OSError, ValueError, StatusError) as error:
            self._failed = content
            self._next_try = time.monotonic() + self._retry_seconds
            self._report(error)
            return False
        self._applied, self._failed, self._reported = content, None, ""
        _log.info("The models follow %s.", self._file)
        return True

    def close(self, seconds: float | None = None) -> None:
        """Stop looking, and wait for a change that is being made.

        Args:
            seconds: How long to wait, at least 0; None until it has been made.
        """
        self._closed.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            try:
                self.look_now()
            except Exception:  # the file must be watched as long as the models serve
                _log.exception("Following %s failed.", self._file)

    def _report(self, error: Exception) -> None:
        if str(error) != self._reported:
            self._reported = str(error)
            _log.error("The models stay as they are, %s: %s", self._file, error)
