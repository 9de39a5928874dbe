"""Know the folder of each model on this machine: its base path, or copies of it."""

import contextlib
import hashlib
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path

from tfdml.files import Lock
from tfdml.messages import shown
from tfdml.model_version import read_description

from .config import ModelConfig
from .copies import ModelCopies
from .saved_model import model_fingerprint

_log = logging.getLogger(__name__)


class ModelPlaces:
    """The folders in which the versions of models lie.

    A base path in the cloud is copied here by a thread of its own: neither requests nor
    other models wait for it.

    Args:
        folder: Folder of the copies, which another start takes up again; by default a
            new one that `close` removes.
        check: Looks at the copy of a version before it is taken over, see
            `ModelCopies`; None for no look.

    Raises:
        ValueError: Another process has its copies in `folder`.
    """

    def __init__(
        self,
        folder: str | PathLike[str] | None = None,
        check: Callable[[Path], None] | None = None,
    ) -> None:
        self._check = check or (lambda folder: None)
        self._copies: dict[str, ModelCopies] = {}
        self._configs: list[ModelConfig] = []
        self._told: dict[str, str] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._stack = contextlib.ExitStack()
        self._folder: Path | None = None
        if folder is not None:
            self._folder = Path(folder)
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                self._stack.callback(Lock(self._folder).close)
            except BlockingIOError as error:
                raise ValueError(
                    "`download_folder` must be a folder of this process alone. "
                    f"Received: {shown(str(folder))}, which another process uses."
                ) from error

    def follow(self, configs: Iterable[ModelConfig]) -> None:
        """Look at these models from now on, and at no others."""
        self._configs = list(configs)

    def start(self, seconds: float) -> None:
        """Look at the base paths in the cloud from now on, every so many seconds."""
        if seconds:
            self._thread = threading.Thread(
                target=self._run, args=[seconds], name="model-copies", daemon=True
            )
            self._thread.start()

    def brought(self, config: ModelConfig) -> Path:
        """Return the folder of a model, with what the cloud has now.

        Raises:
            OSError: The cloud refuses, and there is no copy.
        """
        copies = self._copies_of(config)
        if copies is None:
            assert isinstance(config.base_path, Path)  # noqa: S101
            return config.base_path
        try:
            copies.look(config.policy, at_once=True)
        except OSError as error:
            if not copies.versions():
                raise
            self._tell(config, error)
        copies.take_over()
        return copies.folder

    def current(self, config: ModelConfig) -> Path:
        """Return the folder of a model, with what the last look has brought."""
        copies = self._copies_of(config)
        if copies is None:
            assert isinstance(config.base_path, Path)  # noqa: S101
            return config.base_path
        copies.take_over()
        return copies.folder

    def look(self) -> None:
        """Look at all base paths in the cloud once; what they refuse is logged."""
        for config in self._configs:
            copies = self._copies_of(config)
            if copies is None or self._closed.is_set():
                continue
            try:
                copies.look(config.policy)
            except Exception as error:  # a cloud may raise whatever it likes
                self._tell(config, error)
            else:
                self._told.pop(config.name, None)

    def close(self) -> None:
        """Look no more, and leave the copies that are kept."""
        self._closed.set()
        for copies in self._copies.values():
            copies.stop()
        self._stack.close()

    def _run(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            self.look()

    def _tell(self, config: ModelConfig, error: Exception) -> None:
        """Log what went wrong with a model, but not at every look."""
        text = f"Model {config.name} stays as it is: {error}"
        if self._told.get(config.name) != text:
            self._told[config.name] = text
            _log.warning("%s", text)

    def _copies_of(self, config: ModelConfig) -> ModelCopies | None:
        remote = config.base_path
        if isinstance(remote, Path):
            return None
        if remote.url not in self._copies:
            if self._folder is None:
                self._folder = Path(
                    self._stack.enter_context(
                        tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                    )
                )
            name = hashlib.sha256(remote.url.encode()).hexdigest()[:16]
            copies = ModelCopies(remote, self._folder / name, self._check)
            self._copies[remote.url] = copies
        return self._copies[remote.url]


def check_fingerprint(folder: Path) -> None:
    """Check that the graph and weights of a version are those that were exported.

    Raises:
        ValueError: They are not, or the description is damaged. A model without a
            fingerprint is taken as it is.
    """
    description = read_description(folder)
    exported = None if description is None else description.get("fingerprint")
    if exported is not None and exported != model_fingerprint(folder):
        raise ValueError("its graph and weights are not those that were exported.")
