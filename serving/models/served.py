"""Which version of which model a request means, and what state each one is in.

One table for every protocol: the model manager changes it, requests read it. Nothing
here loads a model or waits for anything, so a request is never held up by a swap.
"""

import contextlib
import enum
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.models.servable import Servable, ServableError, StatusCode

__all__ = ["ServedModels", "VersionState", "VersionStatus"]

_MOST_ENDED = 100
"""Ended versions of a model that its status still tells; older ones are forgotten."""


class VersionState(enum.IntEnum):
    """The states of a version, with the numbers of TF Serving's protocol."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True)
class VersionStatus:
    """What the status of a model tells of one version.

    Attributes:
        version: Number of the version.
        state: Its state.
        error_code: OK, or why it could not be loaded.
        error_message: The same in words; empty if nothing failed.
    """

    version: int
    state: VersionState
    error_code: StatusCode = StatusCode.OK
    error_message: str = ""


@dataclass(eq=False)
class _Entry:
    """One loaded copy of a version, or what is left of it."""

    status: VersionStatus
    servable: Servable | None = None
    users: int = 0


@dataclass
class _Model:
    entries: dict[int, _Entry] = field(default_factory=dict)
    # Copies that another copy of the same version has replaced while they were used.
    replaced: list[_Entry] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    latest: int | None = None
    is_configured: bool = False
    was_available: bool = False


class ServedModels:
    """The models of a server: versions, their states, and who uses them.

    All methods may be called from several threads.

    Args:
        servables: Versions that are available from the start, for a server whose
            models do not change.
    """

    def __init__(self, servables: Iterable[Servable] = ()) -> None:
        # Reentrant: the garbage collector may end an abandoned lease at any place.
        self._lock = threading.RLock()
        self._models: dict[str, _Model] = {}
        self._on_idle: Callable[[], None] = lambda: None
        servables = list(servables)
        self.configure({servable.name: {} for servable in servables})
        for servable in servables:
            self.make_available(servable)

    @contextlib.contextmanager
    def lease(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Servable]:
        """Hold a version for the length of a `with` block, so that it stays loaded.

        Does not wait. The block may be left in another thread than it was entered.

        Args:
            name: Name of the model.
            version: Which version. By default the highest available one.
            label: Label of the version, instead of its number.

        Yields:
            The version.

        Raises:
            ServableError: It is not available, with TF Serving's text.
        """
        entry, servable = self._take(name, version, label)
        try:
            yield servable
        finally:
            # The frame of a generator that an exception left may live on in a
            # traceback, and must not keep the model in memory.
            del servable
            self._leave(entry)

    def status(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Any:
        """Return the state of a version or of all versions, the newest first.

        Args:
            name: Name of the model.
            version: Which version. By default all of them.
            label: Label of the version, instead of its number.

        Returns:
            A `GetModelStatusResponse`.

        Raises:
            ServableError: The server knows no such version, with TF Serving's text.
        """
        from serving.models.info import model_status

        with self._lock:
            model = self._models.get(name, _Model())
            if label is not None:
                version = _labelled(model, label)
            statuses = [
                entry.status
                for number, entry in model.entries.items()
                if version in (None, number)
            ]
        if not statuses:
            missing = (
                "any versions" if version is None else f"version {version}"
            ) + f" of model {name}"
            raise ServableError(StatusCode.NOT_FOUND, f"Could not find {missing}")
        return model_status(statuses)

    def is_ready(self) -> bool:
        """Tell whether every configured model has an available version."""
        with self._lock:
            return all(
                model.latest is not None
                for model in self._models.values()
                if model.is_configured
            )

    def names(self) -> list[str]:
        """Return the names of the configured models, sorted."""
        with self._lock:
            return sorted(
                name for name, model in self._models.items() if model.is_configured
            )

    def configure(self, labels: Mapping[str, Mapping[str, int]]) -> None:
        """Set which models there are, and their labels.

        A model that is not among them keeps its versions until they are unloaded.

        Args:
            labels: For each model that is configured, the version of each label.
        """
        with self._lock:
            for name in labels:
                self._models.setdefault(name, _Model())
            for name, model in self._models.items():
                model.is_configured = name in labels
                model.labels = dict(labels.get(name, {}))

    def set_state(self, name: str, status: VersionStatus) -> None:
        """Tell how far a version has come, or why it failed.

        An available version stays available, whatever becomes of another copy of it.

        Args:
            name: Name of the model.
            status: The version and its state: START, LOADING or END.
        """
        with self._lock:
            model = self._models.setdefault(name, _Model())
            old = model.entries.get(status.version)
            if old is not None and old.status.state == VersionState.AVAILABLE:
                return
            _replace(model, _Entry(status))
            _forget_ended(model)

    def make_available(self, servable: Servable) -> None:
        """Answer requests with this version from now on.

        A copy of the same version that is loaded serves its users until they leave.
        """
        status = VersionStatus(servable.version, VersionState.AVAILABLE)
        with self._lock:
            model = self._models.setdefault(servable.name, _Model())
            _replace(model, _Entry(status, servable))
            model.was_available = True
            _find_latest(model)
        self._on_idle()

    def unload(self, name: str, version: int) -> None:
        """Take no more requests for an available version; its users may finish."""
        with self._lock:
            model = self._models[name]
            model.entries[version].status = VersionStatus(
                version, VersionState.UNLOADING
            )
            _find_latest(model)
        self._on_idle()

    def collect_idle(self) -> list[Servable]:
        """Let go of the versions that are unloading and have no users any more.

        Returns:
            Their servables. The memory is free when the caller drops them.
        """
        idle: list[_Entry] = []
        with self._lock:
            for name, model in list(self._models.items()):
                for version, entry in model.entries.items():
                    if _is_idle(entry) and (
                        entry.status.state == VersionState.UNLOADING
                    ):
                        entry.status = VersionStatus(version, VersionState.END)
                        idle.append(entry)
                idle += [entry for entry in model.replaced if _is_idle(entry)]
                model.replaced = [
                    entry for entry in model.replaced if not _is_idle(entry)
                ]
                _forget_ended(model)
                if not (model.is_configured or model.entries or model.replaced):
                    del self._models[name]
            servables = [entry.servable for entry in idle if entry.servable is not None]
            for entry in idle:
                entry.servable = None
        return servables

    def available_versions(self, name: str) -> set[int]:
        """Return the versions of a model that requests can reach."""
        with self._lock:
            model = self._models.get(name, _Model())
            return {
                version
                for version, entry in model.entries.items()
                if entry.status.state == VersionState.AVAILABLE
            }

    def call_when_idle(self, on_idle: Callable[[], None]) -> None:
        """Set what is called when `collect_idle` may find something.

        It is called in the threads of requests, so it must be short and not raise.
        """
        self._on_idle = on_idle

    def _take(
        self, name: str, version: int | None, label: str | None
    ) -> tuple[_Entry, Servable]:
        if not name:
            raise ServableError(
                StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified."
            )
        with self._lock:
            model = self._models.get(name, _Model())
            if model.is_configured and not model.was_available:
                raise ServableError(
                    StatusCode.UNAVAILABLE, "The model is still being loaded. Retry."
                )
            if label is not None:
                version = _labelled(model, label)
            wanted = model.latest if version is None else version
            entry = None if wanted is None else model.entries.get(wanted)
            if (
                entry is None
                or entry.servable is None
                or entry.status.state != VersionState.AVAILABLE
            ):
                sought = (
                    f"Latest({name})"
                    if version is None
                    else f"Specific({name}, {version})"
                )
                raise ServableError(
                    StatusCode.NOT_FOUND, f"Servable not found for request: {sought}"
                )
            entry.users += 1
            return entry, entry.servable

    def _leave(self, entry: _Entry) -> None:
        with self._lock:
            entry.users -= 1
            is_idle = _is_idle(entry)
        if is_idle:
            self._on_idle()


def _is_idle(entry: _Entry) -> bool:
    return entry.users == 0 and entry.servable is not None


def _labelled(model: _Model, label: str) -> int:
    if label not in model.labels:
        raise ServableError(
            StatusCode.INVALID_ARGUMENT, f"Unrecognized servable version label: {label}"
        )
    return model.labels[label]


def _replace(model: _Model, entry: _Entry) -> None:
    """Put an entry behind all others, which tells `_forget_ended` their age."""
    old = model.entries.pop(entry.status.version, None)
    if old is not None and old.servable is not None:
        model.replaced.append(old)
    model.entries[entry.status.version] = entry


def _find_latest(model: _Model) -> None:
    model.latest = max(
        (
            version
            for version, entry in model.entries.items()
            if entry.status.state == VersionState.AVAILABLE
        ),
        default=None,
    )


def _forget_ended(model: _Model) -> None:
    ended = [
        version
        for version, entry in model.entries.items()
        if entry.status.state == VersionState.END
    ]
    for version in ended[:-_MOST_ENDED]:
        del model.entries[version]
