"""Load versions: warm them up, note what became of them, decide when to try again."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...web.status import StatusCode, StatusError
from .config import ModelConfig
from .plan import ModelPlan, check_labels, older_versions
from .saved_model import folder_stamp
from .servable import Servable
from .served import ServedModels
from .version_states import VersionState, VersionStatus

_log = logging.getLogger(__name__)


@dataclass
class _Attempt:
    """The attempts to load one version.

    Attributes:
        name: Name of the model.
        version: Number of the version.
        seen: Stamp of its files at the last look.
        failed: Stamp of its files when it could not be loaded.
        failures: How often these files could not be loaded.
        next_try: Time before which they are not tried again.
    """

    name: str
    version: int
    seen: Any = None
    failed: Any = None
    failures: int = 0
    next_try: float = 0.0


class VersionLoader:
    """Loads versions and remembers those that could not be loaded.

    Args:
        models: Takes the states START, LOADING and END of versions.
        load: Loads a version from its name, number and folder.
        warm_up: Is given each loaded version and its folder; raises if it does not
            work, and returns how many requests it has answered.
        on_warmed_up: Is called with folder, seconds and error (None if it succeeded) of
            each warm-up that had requests.
        retries: How often a version that could not be loaded is tried again.
        retry_seconds: Seconds before each further try.
    """

    def __init__(
        self,
        models: ServedModels,
        load: Callable[[str, int, Path], Servable],
        warm_up: Callable[[Servable, Path], int],
        on_warmed_up: Callable[[Path, float, str | None], None] | None,
        retries: int,
        retry_seconds: float,
    ) -> None:
        self._models = models
        self._load = load
        self._warm_up = warm_up
        self._on_warmed_up = on_warmed_up
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._attempts: dict[Path, _Attempt] = {}
        self._garbage = threading.Event()

    def is_due(self, name: str, version: int, folder: Path) -> bool:
        """Return whether a version that is not loaded should be, now.

        It is when its files have not changed since the last look, and these files have
        not failed yet or may be tried again.
        """
        stamp = folder_stamp(folder)
        attempt = self._attempts.get(folder)
        if attempt is None:
            attempt = self._attempts[folder] = _Attempt(name, version)
            self._models.set_state(name, VersionStatus(version, VersionState.START))
        is_settled, attempt.seen = attempt.seen == stamp, stamp
        if not is_settled:
            return False
        if stamp != attempt.failed:
            attempt.failures = 0
            return True
        return (
            attempt.failures <= self._retries and time.monotonic() >= attempt.next_try
        )

    def load(self, name: str, version: int, folder: Path) -> Servable | VersionStatus:
        """Load and warm up a version.

        Returns:
            The version, or what is wrong with it.
        """
        self._models.set_state(name, VersionStatus(version, VersionState.LOADING))
        stamp = folder_stamp(folder)
        try:
            servable = self._load(name, version, folder)
            self._run_warm_up(servable, folder)
        except Exception as error:  # the loader raises whatever it stumbles over
            # Only the text is kept: the traceback holds on to what has been loaded.
            failed = VersionStatus(version, VersionState.END, _code(error), str(error))
        else:
            self._attempts.pop(folder, None)
            return servable
        self._garbage.set()
        self._models.set_state(name, failed)
        attempt = self._attempts.setdefault(folder, _Attempt(name, version))
        attempt.seen = attempt.failed = stamp
        attempt.failures += 1
        attempt.next_try = time.monotonic() + self._retry_seconds
        _log.error("Version %d of model %s: %s", version, name, failed.error_message)
        return failed

    def load_several(
        self, name: str, versions: Iterable[int], folders: Mapping[int, Path]
    ) -> tuple[list[Servable], list[str]]:
        """Load versions of a model.

        Args:
            name: Name of the model.
            versions: Which versions, in the order in which they are loaded.
            folders: Folder of each.

        Returns:
            Those that could be loaded, and what is wrong with the others.
        """
        loaded, failures = [], []
        for version in versions:
            result = self.load(name, version, folders[version])
            if isinstance(result, VersionStatus):
                failures.append(result.error_message)
            else:
                loaded.append(result)
        return loaded, failures

    def load_first(self, config: ModelConfig, plan: ModelPlan) -> list[Servable]:
        """Load what a model needs when the server starts.

        Args:
            config: The model.
            plan: What it calls for.

        Returns:
            The versions that could be loaded, at least one: the wanted ones, or an
            older one where `older_versions` allows it.

        Raises:
            ValueError: There is none, or a label points at another version.
        """
        loaded, failures = self.load_several(config.name, plan.to_load, plan.folders)
        for version in [] if loaded else older_versions(config, plan):
            loaded, failed = self.load_several(config.name, [version], plan.folders)
            if loaded:
                break
            failures += failed
        if not loaded:
            raise ValueError("\n".join(failures))
        try:
            check_labels(config, {servable.version for servable in loaded})
        except StatusError as error:
            raise ValueError(f"{error.message}.") from error
        return loaded

    def load_all(
        self, plans: Mapping[str, ModelPlan], configured: Set[str]
    ) -> dict[str, list[Servable]]:
        """Load all that several models call for, or nothing.

        Args:
            plans: What each model calls for.
            configured: Models that are looked at again if this fails.

        Returns:
            The versions of each model, not yet available.

        Raises:
            StatusError: A version cannot be loaded; all are given up.
        """
        staged: dict[str, list[Servable]] = {}
        failures: list[str] = []
        for name, plan in plans.items():
            staged[name], failed = self.load_several(name, plan.to_load, plan.folders)
            if failed:
                failures.append(f"{{{name} due to error: {' '.join(failed)}}}, ")
        if not failures:
            return staged
        for name, servables in staged.items():
            while servables:
                self.discard(servables.pop())
            if name not in configured:
                self.forget_others(name, set())
        raise StatusError(
            StatusCode.UNKNOWN,
            f"{len(failures)} model(s) did not become available: "
            f"{{{''.join(failures)}}}",
        )

    def discard(self, servable: Servable) -> None:
        """Give up a loaded version that has never been available."""
        self._garbage.set()
        self._models.set_state(
            servable.name, VersionStatus(servable.version, VersionState.END)
        )

    def take_garbage(self) -> bool:
        """Return whether something was given up since the last call."""
        is_set = self._garbage.is_set()
        self._garbage.clear()
        return is_set

    def forget_others(self, name: str, folders: Set[Path]) -> None:
        """Drop what is known of versions of a model that nobody wants any more.

        Args:
            name: Name of the model.
            folders: Folders of the versions that are wanted.
        """
        for folder, attempt in list(self._attempts.items()):
            if attempt.name != name or folder in folders:
                continue
            del self._attempts[folder]
            if attempt.failed is None:  # its state is START, which promises too much
                self._models.set_state(
                    name, VersionStatus(attempt.version, VersionState.END)
                )

    def _run_warm_up(self, servable: Servable, folder: Path) -> None:
        start = time.monotonic()
        count, failure = 0, None
        try:
            count = self._warm_up(servable, folder)
        except Exception as error:
            failure = str(error)
            raise
        finally:
            has_run = failure is not None or count != 0
            if has_run and self._on_warmed_up is not None:
                self._on_warmed_up(folder, time.monotonic() - start, failure)


def _code(error: Exception) -> StatusCode:
    if isinstance(error, StatusError):
        return error.code
    if isinstance(error, FileNotFoundError):
        return StatusCode.NOT_FOUND
    if isinstance(error, ValueError):
        return StatusCode.INVALID_ARGUMENT
    return StatusCode.INTERNAL
